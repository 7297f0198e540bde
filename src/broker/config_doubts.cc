// SPDX-License-Identifier: Apache-2.0
// Warnings about a valid configuration.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "broker/config.h"
#include "broker/tenant_spec.h"
#include "sched/arbiter.h"
#include "spec/spec.h"

namespace gpushare::broker {
namespace {

struct Found {
  std::vector<std::string> uncapped, guaranteed;
  double caps = 0, guarantees = 0;
};

// `gpu` empty: any GPU that is not named. ParseConfig() has accepted every spec.
Found FindOn(const Config& config, const std::string& gpu) {
  Found found;
  for (const TenantConfig& tenant : config.tenants) {
    if (!tenant.parent.empty()) continue;  // what it has is its parent's
    const absl::StatusOr<gpushare_spec> spec = SpecOn(tenant, gpu);
    if (!spec.ok()) continue;
    const absl::StatusOr<spec::Limits> limits =
        spec::ResolveSpec(*spec, GPUSHARE_PRIORITY_UNSET, static_cast<uint64_t>(INT64_MAX));
    if (!limits.ok()) continue;
    const sched::TenantLimits& compute = limits->compute;
    if (compute.band == sched::Band::kHigh) {
      found.caps += compute.cap;
      if (compute.cap >= 1) found.uncapped.push_back(absl::StrCat("'", tenant.name, "'"));
    } else if (compute.guarantee > 0) {
      found.guarantees += compute.guarantee;
      found.guaranteed.push_back(absl::StrCat("'", tenant.name, "'"));
    }
  }
  return found;
}

std::string Percent(double part) { return absl::StrCat(std::lround(part * 100), " %"); }

}  // namespace

std::vector<std::string> DoubtsOf(const Config& config) {
  std::set<std::string> gpus = {""};
  for (const TenantConfig& tenant : config.tenants) {
    for (const auto& [gpu, keys] : tenant.on) gpus.insert(gpu);
  }
  std::vector<std::string> doubts;
  if (config.tenants.empty() && !config.unlisted) {
    doubts.push_back("no tenant is listed and 'unlisted' is false: no process may register");
  }
  for (const std::string& gpu : gpus) {
    const Found found = FindOn(config, gpu);
    if (found.guaranteed.empty() || found.caps <= 0) continue;
    const std::string of = absl::StrJoin(found.guaranteed, ", ");
    std::string doubt;
    if (!found.uncapped.empty()) {
      doubt = absl::StrCat(
          absl::StrJoin(found.uncapped, ", "),
          ": priority=high without a cap; while there is work of it, nothing is left of what is "
          "guaranteed to ",
          of, ". Give it a 'cap'");
    } else if (found.caps + found.guarantees > 1 + 1e-6) {
      doubt =
          absl::StrCat("the caps of tenants of high priority are ", Percent(found.caps),
                       " together, and what is guaranteed to ", of, " is ",
                       Percent(found.guarantees), ": it does not hold while those use their caps");
    } else {
      continue;
    }
    if (!gpu.empty()) absl::StrAppend(&doubt, " (on ", gpu, ")");
    // A warning about all GPUs is not repeated for a GPU that is named for another reason.
    const auto same = [&](const std::string& said) { return absl::StartsWith(doubt, said); };
    if (std::none_of(doubts.begin(), doubts.end(), same)) doubts.push_back(std::move(doubt));
  }
  return doubts;
}

}  // namespace gpushare::broker
