// SPDX-License-Identifier: Apache-2.0
#include "spec/limits.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "sched/policies.h"
#include "spec/keys.h"
#include "spec/spec.h"
#include "spec/text.h"

namespace gpushare::spec {
namespace {

std::string GivenFor(Key key, const gpushare_spec& s) {
  return key == Key::kWeight      ? FormatNumber(s.weight)
         : key == Key::kGuarantee ? FormatShare(s.guarantee)
         : key == Key::kCap       ? FormatShare(s.cap)
                                  : FormatShare(s.compute);
}

absl::Status CheckPolicyKeys(const gpushare_spec& s, const sched::Policy& policy) {
  const auto refused = [&](Key key, const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("spec field '", FieldOf(key).name,
                                                   "': ", GivenFor(key, s), " given, but policy '",
                                                   policy.name, "' ", why));
  };
  for (const auto& [key, means] : kPolicyFields) {
    if ((s.set & FieldOf(key).bits) == 0) continue;
    if (const char* const why = sched::Contradicts(policy.kind, means)) {
      return refused(key, absl::StrCat(why, "; leave it out, or take another policy"));
    }
  }
  constexpr uint32_t kBoth = GPUSHARE_SPEC_COMPUTE | GPUSHARE_SPEC_GUARANTEE;
  if (policy.kind == sched::PolicyKind::kFixed && (s.set & kBoth) == kBoth &&
      s.guarantee != s.compute) {
    return refused(Key::kGuarantee, absl::StrCat("promises exactly 'compute', ",
                                                 FormatShare(s.compute), "; leave it out"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<sched::TenantLimits> ComputeLimits(const gpushare_spec& s) {
  const bool has_cap = (s.set & GPUSHARE_SPEC_CAP) != 0;
  const bool has_guarantee = (s.set & GPUSHARE_SPEC_GUARANTEE) != 0;
  sched::TenantLimits limits;
  if (s.set & GPUSHARE_SPEC_POLICY) {
    absl::StatusOr<const sched::Policy*> policy = sched::FindPolicy(PolicyOf(s));
    if (!policy.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec field 'policy': ", policy.status().message()));
    }
    GPUSHARE_RETURN_IF_ERROR(CheckPolicyKeys(s, **policy));
    sched::PolicyRequest request;
    // A guarantee can take the place of the share that the policy requires.
    request.share = s.set & GPUSHARE_SPEC_COMPUTE ? s.compute : has_guarantee ? s.guarantee : 0;
    request.limit = has_cap ? s.cap : 0;
    request.weight = s.set & GPUSHARE_SPEC_WEIGHT ? s.weight : 0;
    absl::StatusOr<sched::TenantLimits> preset = sched::ApplyPolicy((*policy)->name, request);
    if (!preset.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec field 'policy': ", preset.status().message()));
    }
    limits = *preset;
  } else if (s.set & GPUSHARE_SPEC_COMPUTE) {
    limits.guarantee = s.compute;
    // compute=50%,cap=30% means 30 %: the smaller value holds.
    if (has_cap && s.cap < limits.guarantee) limits.guarantee = s.cap;
  }
  if (s.set & GPUSHARE_SPEC_WEIGHT) limits.weight = s.weight;
  if (has_guarantee) limits.guarantee = s.guarantee;
  if (has_cap) limits.cap = s.cap;
  if (s.set & GPUSHARE_SPEC_BURST) limits.burst = Nanos(s.burst_ns);
  if (s.set & GPUSHARE_SPEC_DELAY) limits.delay = s.delay;
  if (limits.guarantee > limits.cap) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec field 'guarantee': ", FormatShare(limits.guarantee), " is over the cap of ",
        FormatShare(limits.cap), "; allowed: 0% to ", FormatShare(limits.cap), ", or raise 'cap'"));
  }
  GPUSHARE_RETURN_IF_ERROR(sched::CheckLimits(limits));
  return limits;
}

absl::StatusOr<Limits> ResolveSpec(const gpushare_spec& spec, gpushare_priority priority,
                                   uint64_t capacity) {
  GPUSHARE_RETURN_IF_ERROR(ValidateSpec(spec));
  Limits limits;
  GPUSHARE_ASSIGN_OR_RETURN(limits.compute, ComputeLimits(spec));
  if (spec.set & GPUSHARE_SPEC_MEMORY) limits.memory = spec.memory;
  if (spec.set & GPUSHARE_SPEC_MEMORY_SHARE) {
    limits.memory = static_cast<uint64_t>(spec.memory_share * static_cast<double>(capacity));
    if (*limits.memory == 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("spec field 'memory': ", FormatShare(spec.memory_share), " of the ",
                       ReadableBytes(capacity),
                       " that this GPU has to promise is nothing; ask for more, or lower "
                       "the memory reserve (GPUSHARE_MEMORY_RESERVE)"));
    }
  }
  if (spec.set & kMemoryCapBits) {
    limits.memory_cap =
        spec.set & GPUSHARE_SPEC_MEMORY_CAP
            ? spec.memory_cap
            : static_cast<uint64_t>(spec.memory_cap_share * static_cast<double>(capacity));
    limits.memory_cap = std::min(*limits.memory_cap, capacity);  // the device has no more
    if (*limits.memory_cap < *limits.memory) {
      // A quota above the capacity is refused at admission, under the key 'memory'.
      if (*limits.memory <= capacity) {
        return Bad(Key::kMemoryCap, GivenCap(spec),
                   absl::StrCat("it is less than 'memory', ", ReadableBytes(*limits.memory)));
      }
      limits.memory_cap = limits.memory;
    }
  }
  // The spec's priority, else the tenant's, else the policy's.
  if (spec.set & GPUSHARE_SPEC_PRIORITY) priority = static_cast<gpushare_priority>(spec.priority);
  switch (priority) {
    case GPUSHARE_PRIORITY_UNSET:
      break;
    case GPUSHARE_PRIORITY_HIGH:
      limits.compute.band = sched::Band::kHigh;
      break;
    case GPUSHARE_PRIORITY_NORMAL:
      limits.compute.band = sched::Band::kNormal;
      break;
    case GPUSHARE_PRIORITY_LOW:
      limits.compute.band = sched::Band::kLow;
      break;
  }
  if (spec.set & GPUSHARE_SPEC_H2D) limits.h2d_bytes_per_s = static_cast<double>(spec.h2d);
  if (spec.set & GPUSHARE_SPEC_D2H) limits.d2h_bytes_per_s = static_cast<double>(spec.d2h);
  return limits;
}

gpushare_priority PriorityOf(sched::Band band) {
  switch (band) {
    case sched::Band::kHigh:
      return GPUSHARE_PRIORITY_HIGH;
    case sched::Band::kLow:
      return GPUSHARE_PRIORITY_LOW;
    case sched::Band::kNormal:
      break;
  }
  return GPUSHARE_PRIORITY_NORMAL;
}

const char* PriorityName(sched::Band band) {
  return std::find_if(std::begin(kPriorities), std::end(kPriorities) - 1,
                      [&](const Choice& choice) { return choice.value == PriorityOf(band); })
      ->word;
}

}  // namespace gpushare::spec
