// SPDX-License-Identifier: Apache-2.0
#include "harness/alone.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/questions/question.h"

namespace gpushare::harness {

namespace {

bool PlaysAlone(const Scenario& scenario, const Tenant& tenant) {
  const Question& question = *scenario.question;
  return question.each_alone || (question.with_alone && ServesRequests(tenant));
}

}  // namespace

size_t RunsAlone(const Scenario& scenario, const Case& one) {
  return static_cast<size_t>(
      std::count_if(one.tenants.begin(), one.tenants.end(),
                    [&](const Tenant& tenant) { return PlaysAlone(scenario, tenant); }));
}

bool AloneBySms(const Scenario& scenario, const Method& method) {
  return scenario.question->each_alone && method.kind == Method::Kind::kSpatial;
}

const absl::StatusOr<Outcome>& Alone::Of(const Scenario& scenario, const Case& one, uint64_t seed) {
  return kept_.Of(one, seed, [&] { return PlayEach(scenario, one, seed); });
}

absl::StatusOr<Outcome> Alone::PlayEach(const Scenario& scenario, const Case& one,
                                        uint64_t seed) const {
  Outcome all;
  for (size_t i = 0; i < one.tenants.size(); ++i) {
    if (!PlaysAlone(scenario, one.tenants[i])) continue;
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
