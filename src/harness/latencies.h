// SPDX-License-Identifier: Apache-2.0
// The latencies of a tenant's requests.
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

// The latencies of the requests that arrived after the warm-up. A request that was not served when the run ended counts as if it
// had been served then: that is the least that it took.
Latencies LatenciesOf(const Scenario& scenario, const TenantOutcome& tenant);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_LATENCIES_H_
