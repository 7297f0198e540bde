// SPDX-License-Identifier: Apache-2.0
// An interval of a run's time.
#ifndef GPUSHARE_HARNESS_STRETCH_H_
#define GPUSHARE_HARNESS_STRETCH_H_

#include "base/time.h"

namespace gpushare::harness {

// Times since the start. A list of stretches is ascending and disjoint unless stated otherwise.
struct Stretch {
  Nanos from, to;
  bool operator==(const Stretch&) const = default;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STRETCH_H_
