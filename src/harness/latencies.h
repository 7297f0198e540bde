// SPDX-License-Identifier: Apache-2.0
// How long a tenant's requests took.
#ifndef GPUSHARE_HARNESS_LATENCIES_H_
#define GPUSHARE_HARNESS_LATENCIES_H_

#include <cstddef>
#include <vector>

#include "harness/plan.h"
#include "harness/scenario.h"

namespace gpushare::harness {

struct Latencies {
  std::vector<double> us;  // from the arrival
  size_t served = 0;
};

// Of the requests that came after the warm-up. One that was not served when the run ended took at least until then, which is
// what it counts as.
Latencies LatenciesOf(const Scenario& scenario, const TenantOutcome& tenant);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_LATENCIES_H_
