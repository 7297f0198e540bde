// SPDX-License-Identifier: Apache-2.0
// Intervals of a run's time that begin and end between samples: when requests were served, and when none were.
//
//   const std::vector<Stretch> busy = United({Serving(outcome.tenants[0], scenario.length)});
//   const double had = UsedIn(outcome.tenants[1], fine, Between(busy, {scenario.warm_up, scenario.length}));
#ifndef GPUSHARE_HARNESS_STRETCHES_H_
#define GPUSHARE_HARNESS_STRETCHES_H_

#include <vector>

#include "base/time.h"
#include "harness/plan.h"
#include "harness/stretch.h"

namespace gpushare::harness {

// When a tenant's requests were waiting or being served. Unserved ones wait until `end`.
std::vector<Stretch> Serving(const TenantOutcome& tenant, Nanos end);
// When the tenant had commands in flight: for each request or batch, from the launch of its first command until the wait for its
// last one returned. In between, commands are launched without pauses.
std::vector<Stretch> InFlight(const TenantOutcome& tenant);
// The union of stretches in any order, each extended by `after`.
std::vector<Stretch> United(std::vector<Stretch> any, Nanos after = Nanos(0));
// The parts of the stretches within `all`, and the gaps between them.
std::vector<Stretch> Within(const std::vector<Stretch>& stretches, Stretch all);
std::vector<Stretch> Between(const std::vector<Stretch>& stretches, Stretch all);

double LengthOf(const std::vector<Stretch>& stretches);  // ns
// The tenant's device time within the stretches in ns, interpolated linearly between its fine_ns samples.
double UsedIn(const TenantOutcome& tenant, Nanos fine, const std::vector<Stretch>& stretches);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STRETCHES_H_
