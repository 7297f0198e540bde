// SPDX-License-Identifier: Apache-2.0
#include "harness/windows.h"

#include <algorithm>

#include "harness/stretches.h"

namespace gpushare::harness {
namespace {

// For each i, the number of samples without work among the first i.
std::vector<size_t> WithoutWork(const Tenant& tenant, const TenantOutcome& outcome,
                                size_t samples) {
  std::vector<size_t> without(samples + 1, 0);
  const bool requests = ServesRequests(tenant);
  if (!requests && tenant.active.empty()) return without;  // it always has work
  // A server that waits to fill a batch counts as having no work: the device is idle by its own choice.
  const bool waits = tenant.mode == player::PlayMode::kBatches;
  std::vector<bool> works(samples, false);
  for (const Stretch& each : requests ? Serving(outcome, kLongestRun) : tenant.active) {
    const auto first = static_cast<size_t>((each.from + kSample - Nanos(1)) / kSample);
    const auto end = static_cast<size_t>(each.to / kSample);
    for (size_t i = first; i < std::min(end, samples); ++i) works[i] = !waits;
  }
  for (size_t i = 0; i < samples; ++i) without[i + 1] = without[i] + (works[i] ? 0 : 1);
  return without;
}

}  // namespace

double Used(const TenantOutcome& tenant, Span span) {
  return static_cast<double>(tenant.used_ns[span.last] - tenant.used_ns[span.first]);
}

double UsedByAll(const Outcome& outcome, Span span) {
  double sum = 0;
  for (const TenantOutcome& tenant : outcome.tenants) sum += Used(tenant, span);
  return sum;
}

Windows::Windows(const Scenario& scenario, const Case& one, const Outcome& outcome)
    : length_(static_cast<size_t>(scenario.window / kSample)) {
  size_t samples = SIZE_MAX;
  for (const TenantOutcome& tenant : outcome.tenants) {
    samples = std::min(samples, tenant.used_ns.size());
  }
  measured_ = {static_cast<size_t>(scenario.warm_up / kSample),
               samples == SIZE_MAX ? 0 : samples - std::min<size_t>(samples, 1)};
  measured_.first = std::min(measured_.first, measured_.last);
  for (size_t i = 0; i < outcome.tenants.size(); ++i) {
    without_.push_back(WithoutWork(one.tenants[i], outcome.tenants[i], measured_.last));
  }
}

size_t Windows::count() const {
  const size_t samples = measured_.last - measured_.first;
  return samples < length_ ? 0 : samples - length_ + 1;
}

bool Windows::HadWork(size_t tenant, Span span) const {
  return without_[tenant][span.last] == without_[tenant][span.first];
}

bool Windows::AllHadWork(Span span) const {
  for (size_t i = 0; i < without_.size(); ++i) {
    if (!HadWork(i, span)) return false;
  }
  return true;
}

}  // namespace gpushare::harness
