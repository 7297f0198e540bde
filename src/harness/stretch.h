// SPDX-License-Identifier: Apache-2.0
// A part of a run's time.
#ifndef GPUSHARE_HARNESS_STRETCH_H_
#define GPUSHARE_HARNESS_STRETCH_H_

#include "base/time.h"

namespace gpushare::harness {

// Since the start. Several are ascending and have no time in common, where nothing else is said.
struct Stretch {
  Nanos from, to;
  bool operator==(const Stretch&) const = default;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STRETCH_H_
