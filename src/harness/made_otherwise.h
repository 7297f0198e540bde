// SPDX-License-Identifier: Apache-2.0
// How two files of results were made otherwise than each other: on what, from which sources, by which seed, how long. What
// differs then may be that, and not what somebody changed.
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

// What a file does not say, as one from before that was told, is no difference; but where a GPU is in one of them alone
// the other's has no driver.
std::vector<Otherwise> MadeOtherwise(const Results& before, const Results& after);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_MADE_OTHERWISE_H_
