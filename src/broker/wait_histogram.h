// SPDX-License-Identifier: Apache-2.0
// A histogram of durations.
#ifndef GPUSHARE_BROKER_WAIT_HISTOGRAM_H_
#define GPUSHARE_BROKER_WAIT_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace gpushare::broker {

struct WaitHistogram {
  static constexpr std::array<Nanos, 13> kBounds = {
      Micros(100), Micros(250), Micros(500), Millis(1),   Millis(2),   Millis(5), Millis(10),
      Millis(25),  Millis(50),  Millis(100), Millis(250), Millis(500), Seconds(1)};

  void Add(Nanos took) {
    const auto step = std::lower_bound(kBounds.begin(), kBounds.end(), took) - kBounds.begin();
    ++counts[static_cast<size_t>(step)];
    sum += took;
  }

  std::array<uint64_t, kBounds.size() + 1>
      counts{};  // counts[i]: durations up to kBounds[i] and over the bound before; the last: longer ones
  Nanos sum{0};
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_WAIT_HISTOGRAM_H_
