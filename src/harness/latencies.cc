// SPDX-License-Identifier: Apache-2.0
#include "harness/latencies.h"

namespace gpushare::harness {

Latencies LatenciesOf(const Scenario& scenario, const TenantOutcome& tenant) {
  Latencies latencies;
  const auto add = [&](Nanos latency) {
    latencies.us.push_back(static_cast<double>(latency.count()) / 1e3);
  };
  for (const player::Request& request : tenant.requests) {
    if (request.arrival < scenario.warm_up) continue;
    add(request.latency);
    ++latencies.served;
  }
  for (const Nanos arrival : tenant.unserved) {
    if (arrival >= scenario.warm_up) add(scenario.length - arrival);
  }
  return latencies;
}

}  // namespace gpushare::harness
