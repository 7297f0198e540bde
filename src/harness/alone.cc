// SPDX-License-Identifier: Apache-2.0
#include "harness/alone.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/questions/question.h"

namespace gpushare::harness {

const absl::StatusOr<Outcome>& Alone::Of(const Scenario& scenario, const Case& one, uint64_t seed) {
  if (case_ == &one && seed_ == seed) return kept_;
  kept_ = PlayEach(scenario, one, seed);
  // An interrupted one has not failed.
  case_ = absl::IsCancelled(kept_.status()) ? nullptr : &one;
  seed_ = seed;
  return kept_;
}

absl::StatusOr<Outcome> Alone::PlayEach(const Scenario& scenario, const Case& one,
                                        uint64_t seed) const {
  Outcome all;
  for (size_t i = 0; i < one.tenants.size(); ++i) {
    const bool serves = ServesRequests(one.tenants[i]);
    if (!serves && !scenario.question->each_alone) continue;
    absl::StatusOr<Outcome> outcome = play_(scenario, one, {.seed = seed, .only = i});
    if (!outcome.ok()) {
      return absl::Status(
          outcome.status().code(),
          absl::StrCat(one.tenants[i].name, " alone: ", outcome.status().message()));
    }
    for (TenantOutcome& tenant : outcome->tenants) all.tenants.push_back(std::move(tenant));
  }
  return all;
}

}  // namespace gpushare::harness
