// SPDX-License-Identifier: Apache-2.0
// How the conditions of two files of results differ: GPU, machine, sources, seed, length. Such a difference, not the change
// under test, may be why figures differ.
//
//   for (const Otherwise& each : MadeOtherwise(before, after)) ... each.what, each.before, each.after ...
#ifndef GPUSHARE_HARNESS_MADE_OTHERWISE_H_
#define GPUSHARE_HARNESS_MADE_OTHERWISE_H_

#include <string>
#include <vector>

#include "harness/results.h"

namespace gpushare::harness {

struct Otherwise {
  std::string what, before, after;
  bool operator==(const Otherwise&) const = default;
};

// A condition that one file does not record, because it is older, is no difference. The GPU is an exception: a file without one
// was made without a driver.
std::vector<Otherwise> MadeOtherwise(const Results& before, const Results& after);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_MADE_OTHERWISE_H_
