// SPDX-License-Identifier: Apache-2.0
#include "sched/policies.h"

#include <array>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/range.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace gpushare::sched {
namespace {

constexpr std::array<Policy, 12> kPolicies = {{
    {"best-effort", "qGPU, NVIDIA vGPU",
     "Whatever nobody else wants, by weight; nothing is promised and nothing is withheld.",
     PolicyKind::kBestEffort},
    {"fixed-share", "qGPU, NVIDIA vGPU",
     "Exactly its share while it has work, and never more, also when the device is otherwise idle.",
     PolicyKind::kFixed},
    {"burst-share", "qGPU",
     "Its share whenever it has work, and idle time of others beyond it, up to a limit if one is "
     "given.",
     PolicyKind::kBurst},
    {"fair-share", "cGPU", "An equal part of the device for each tenant that has work.",
     PolicyKind::kEqual},
    {"preemptive", "cGPU",
     "An equal part of the device for each tenant that has work; time of idle tenants goes to the "
     "others.",
     PolicyKind::kEqual},
    {"weight", "cGPU", "A part of the device by weight among the tenants that have work.",
     PolicyKind::kWeighted},
    {"equal-share", "NVIDIA vGPU",
     "An equal part of the device for each tenant that has work; it grows when another stops.",
     PolicyKind::kEqual},
    {"hard", "vCUDA", "A limit that is also a promise: its share, and never more.",
     PolicyKind::kFixed},
    {"soft", "vCUDA", "Its share when the device is contended, and idle time beyond it.",
     PolicyKind::kBurst},
    {"request-limit", "KubeShare",
     "The request is guaranteed and the limit never exceeded; between them by weight.",
     PolicyKind::kBurst},
    {"force", "HAMi", "Its share and never more, also as the only tenant.", PolicyKind::kFixed},
    {"default", "HAMi", "Its share when others have work; as the only tenant it is not limited.",
     PolicyKind::kBurst},
}};

char Plain(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '_' || c == '/' || c == ' ' ? '-' : c;
}

bool SameName(std::string_view given, std::string_view name) {
  if (given.size() != name.size()) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    if (Plain(given[i]) != name[i]) return false;
  }
  return true;
}

absl::Status Bad(const std::string& field, double got, const std::string& allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", got, " given, ", allowed, " allowed"));
}

constexpr double kLeastWeight = 1e-6, kMostWeight = 1e6;
constexpr double kLeastCap = 1e-4;

absl::Status CheckRequest(const Policy& policy, const PolicyRequest& request) {
  if (!Within(request.share, 0, 1)) return Bad("share", request.share, "0 to 1");
  if (!Within(request.limit, 0, 1)) return Bad("limit", request.limit, "0 to 1");
  if (request.weight != 0 && !Within(request.weight, kLeastWeight, kMostWeight)) {
    return Bad("weight", request.weight, "0.000001 to 1000000");
  }
  if (request.tenants < 0) return Bad("tenants", request.tenants, "1 or more");
  const bool wants_share = policy.kind == PolicyKind::kFixed || policy.kind == PolicyKind::kBurst;
  if (wants_share && request.share == 0 && request.tenants == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy '", policy.name,
                     "' needs a share, and neither 'compute' nor 'guarantee' is given; add one "
                     "(compute=30%, say)"));
  }
  if (policy.kind == PolicyKind::kWeighted && request.weight == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy '", policy.name, "' needs a weight, and none was given"));
  }
  if (policy.kind == PolicyKind::kFixed && request.limit != 0 && request.limit != request.share) {
    return absl::InvalidArgumentError(absl::StrCat(
        "policy '", policy.name, "' limits a tenant to its share (", request.share,
        "), and a limit of ", request.limit, " was given: leave it out or use burst-share"));
  }
  const struct {
    PolicyKey key;
    const char* field;
    double given;
  } fields[] = {{PolicyKey::kShare, "share", request.share},
                {PolicyKey::kWeight, "weight", request.weight},
                {PolicyKey::kLimit, "limit", request.limit}};
  for (const auto& [key, field, given] : fields) {
    const char* const why = given != 0 ? Contradicts(policy.kind, key) : nullptr;
    if (why == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", given, " given, but policy '",
                                                   policy.name, "' ", why, "; leave it out"));
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Policy> Policies() { return kPolicies; }

absl::StatusOr<const Policy*> FindPolicy(std::string_view name) {
  for (const Policy& policy : kPolicies) {
    if (SameName(name, policy.name)) return &policy;
  }
  std::string names;
  for (const Policy& policy : kPolicies)
    absl::StrAppend(&names, names.empty() ? "" : ", ", policy.name);
  return absl::InvalidArgumentError(
      absl::StrCat("no policy is called ", Quoted(name), "; there are: ", names));
}

const char* Contradicts(PolicyKind kind, PolicyKey key) {
  switch (kind) {
    case PolicyKind::kBestEffort:
      return key == PolicyKey::kShare ? "promises nothing" : nullptr;
    case PolicyKind::kEqual:
      return key == PolicyKey::kLimit ? nullptr : "gives each tenant the same";
    case PolicyKind::kWeighted:
      return key == PolicyKey::kShare ? "divides by weight alone" : nullptr;
    case PolicyKind::kFixed:
    case PolicyKind::kBurst:
      break;
  }
  return nullptr;
}

absl::StatusOr<TenantLimits> ApplyPolicy(std::string_view name, const PolicyRequest& request) {
  GPUSHARE_ASSIGN_OR_RETURN(const Policy* policy, FindPolicy(name));
  GPUSHARE_RETURN_IF_ERROR(CheckRequest(*policy, request));
  const double share = request.share > 0     ? request.share
                       : request.tenants > 0 ? 1.0 / request.tenants
                                             : 0;
  TenantLimits limits;
  if (request.weight > 0) limits.weight = request.weight;
  switch (policy->kind) {
    case PolicyKind::kBestEffort:
      limits.band = Band::kLow;
      if (request.limit > 0) limits.cap = request.limit;
      break;
    case PolicyKind::kFixed:
      limits.guarantee = limits.cap = share;
      break;
    case PolicyKind::kBurst:
      limits.guarantee = share;
      if (request.limit > 0) limits.cap = request.limit;
      break;
    case PolicyKind::kEqual:
    case PolicyKind::kWeighted:
      if (request.limit > 0) limits.cap = request.limit;
      break;
  }
  GPUSHARE_RETURN_IF_ERROR(CheckLimits(limits));
  return limits;
}

absl::Status CheckLimits(const TenantLimits& limits) {
  if (!Within(limits.weight, kLeastWeight, kMostWeight)) {
    return Bad("weight", limits.weight, "0.000001 to 1000000");
  }
  if (!Within(limits.guarantee, 0, 1)) return Bad("guarantee", limits.guarantee, "0 to 1");
  if (!Within(limits.cap, kLeastCap, 1)) return Bad("cap", limits.cap, "0.0001 to 1");
  if (limits.guarantee > limits.cap) {
    return absl::InvalidArgumentError(absl::StrCat("guarantee: ", limits.guarantee,
                                                   " given, but the cap is ", limits.cap,
                                                   "; lower the guarantee or raise the cap"));
  }
  const auto ms = [](Nanos n) { return static_cast<double>(n.count()) / 1e6; };
  if (limits.cap_depth < Micros(1) || limits.cap_depth > Seconds(10)) {
    return Bad("cap_depth (ms)", ms(limits.cap_depth), "0.001 to 10000");
  }
  if (limits.burst < Nanos(0) || limits.burst > Seconds(10)) {
    return Bad("burst (ms)", ms(limits.burst), "0 to 10000");
  }
  if (!Within(limits.delay, 0, 1)) return Bad("delay", limits.delay, "0 to 1");
  if (limits.band > Band::kLow) {
    return Bad("band", static_cast<double>(limits.band), "0 (high) to 2 (low)");
  }
  return absl::OkStatus();
}

}  // namespace gpushare::sched
