// SPDX-License-Identifier: Apache-2.0
#include "harness/stretches.h"

#include <algorithm>
#include <utility>

namespace gpushare::harness {
namespace {

// Device time from the start until `time`.
double UsedUntil(const TenantOutcome& tenant, Nanos fine, Nanos time) {
  const auto at = static_cast<size_t>(time / fine);
  if (at + 1 >= tenant.fine_ns.size()) return static_cast<double>(tenant.fine_ns.back());
  const auto before = static_cast<double>(tenant.fine_ns[at]);
  const auto after = static_cast<double>(tenant.fine_ns[at + 1]);
  return before + (after - before) * static_cast<double>((time % fine).count()) /
                      static_cast<double>(fine.count());
}

}  // namespace

std::vector<Stretch> Serving(const TenantOutcome& tenant, Nanos end) {
  std::vector<Stretch> each;
  for (const player::Request& request : tenant.requests) {
    each.push_back({request.arrival, request.arrival + request.latency});
  }
  for (const Nanos arrival : tenant.unserved) each.push_back({arrival, std::max(arrival, end)});
  return United(std::move(each));
}

std::vector<Stretch> InFlight(const TenantOutcome& tenant) {
  std::vector<Stretch> each;
  for (const player::Request& request : tenant.requests) {
    each.push_back({request.begun, request.arrival + request.latency});
  }
  return United(std::move(each));
}

std::vector<Stretch> United(std::vector<Stretch> any, Nanos after) {
  std::sort(any.begin(), any.end(),
            [](const Stretch& a, const Stretch& b) { return a.from < b.from; });
  std::vector<Stretch> united;
  for (Stretch& each : any) {
    each.to += after;
    if (united.empty() || each.from > united.back().to) {
      united.push_back(each);
    } else {
      united.back().to = std::max(united.back().to, each.to);
    }
  }
  return united;
}

std::vector<Stretch> Within(const std::vector<Stretch>& stretches, Stretch all) {
  std::vector<Stretch> within;
  for (const Stretch& each : stretches) {
    const Stretch part = {std::max(each.from, all.from), std::min(each.to, all.to)};
    if (part.from < part.to) within.push_back(part);
  }
  return within;
}

std::vector<Stretch> Between(const std::vector<Stretch>& stretches, Stretch all) {
  std::vector<Stretch> between;
  Nanos from = all.from;
  for (const Stretch& each : Within(stretches, all)) {
    if (from < each.from) between.push_back({from, each.from});
    from = each.to;
  }
  if (from < all.to) between.push_back({from, all.to});
  return between;
}

double LengthOf(const std::vector<Stretch>& stretches) {
  Nanos sum{0};
  for (const Stretch& each : stretches) sum += each.to - each.from;
  return static_cast<double>(sum.count());
}

double UsedIn(const TenantOutcome& tenant, Nanos fine, const std::vector<Stretch>& stretches) {
  if (tenant.fine_ns.empty()) return 0;
  double sum = 0;
  for (const Stretch& each : stretches) {
    sum += UsedUntil(tenant, fine, each.to) - UsedUntil(tenant, fine, each.from);
  }
  return sum;
}

}  // namespace gpushare::harness
