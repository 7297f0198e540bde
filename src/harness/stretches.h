// SPDX-License-Identifier: Apache-2.0
// Parts of a run's time, which begin and end between samples: when requests were being served, and when nobody's were.
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

// In which a tenant's requests were waiting or being served; those that were not served were until `end`.
std::vector<Stretch> Serving(const TenantOutcome& tenant, Nanos end);
// In which it had commands in flight: from the call that launched the first of a request's, or of a batch's, until the call had
// returned that waited for the last. In between they are launched one behind the other.
std::vector<Stretch> InFlight(const TenantOutcome& tenant);
// The time of any of them, in whatever order they come; each is longer by `after`.
std::vector<Stretch> United(std::vector<Stretch> any, Nanos after = Nanos(0));
// What lies within `all`, and the rest of that.
std::vector<Stretch> Within(const std::vector<Stretch>& stretches, Stretch all);
std::vector<Stretch> Between(const std::vector<Stretch>& stretches, Stretch all);

double LengthOf(const std::vector<Stretch>& stretches);  // ns
// Device time of the tenant in ns, by its fine_ns: between two of these it counts as evenly spread.
double UsedIn(const TenantOutcome& tenant, Nanos fine, const std::vector<Stretch>& stretches);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STRETCHES_H_
