// SPDX-License-Identifier: Apache-2.0
// Applies a change to a spec: which keys it sets, and which it removes.
#include <cstring>
#include <string>

#include "sched/policies.h"
#include "spec/keys.h"
#include "spec/spec.h"

namespace gpushare::spec {
namespace {

// A policy with a fixed share keeps the guarantee in force unless the change sets one, and removes a cap.
uint32_t KeptByFixed(const gpushare_spec& base, uint32_t changed) {
  constexpr uint32_t kBoth = GPUSHARE_SPEC_COMPUTE | GPUSHARE_SPEC_GUARANTEE;
  uint32_t ended = GPUSHARE_SPEC_CAP;
  if ((changed & kBoth) != 0) {
    ended |= kBoth;
  } else if ((base.set & kBoth) == kBoth) {
    ended |= GPUSHARE_SPEC_COMPUTE;
  }
  return ~ended;
}

}  // namespace

gpushare_spec MergeSpec(const gpushare_spec& base, const gpushare_spec& change) {
  gpushare_spec merged = base;
  const uint32_t set = change.set;
  if (set & kMemoryBits) merged.set &= ~kMemoryBits;
  if (set & kMemoryCapBits) merged.set &= ~kMemoryCapBits;
  if (set & GPUSHARE_SPEC_POLICY) {
    // A new policy removes keys of the old one that it would contradict.
    const absl::StatusOr<const sched::Policy*> policy = sched::FindPolicy(PolicyOf(change));
    for (const auto& [key, means] : kPolicyFields) {
      if (policy.ok() && sched::Contradicts((*policy)->kind, means) != nullptr) {
        merged.set &= ~FieldOf(key).bits;
      }
    }
    if (policy.ok() && (*policy)->kind == sched::PolicyKind::kFixed) {
      merged.set &= KeptByFixed(merged, set);
    }
  }
  merged.set |= set;
  if (set & GPUSHARE_SPEC_MEMORY) merged.memory = change.memory;
  if (set & GPUSHARE_SPEC_MEMORY_SHARE) merged.memory_share = change.memory_share;
  if (set & GPUSHARE_SPEC_MEMORY_CAP) merged.memory_cap = change.memory_cap;
  if (set & GPUSHARE_SPEC_MEMORY_CAP_SHARE) merged.memory_cap_share = change.memory_cap_share;
  if (set & GPUSHARE_SPEC_COMPUTE) merged.compute = change.compute;
  if (set & GPUSHARE_SPEC_WEIGHT) merged.weight = change.weight;
  if (set & GPUSHARE_SPEC_GUARANTEE) merged.guarantee = change.guarantee;
  if (set & GPUSHARE_SPEC_CAP) merged.cap = change.cap;
  if (set & GPUSHARE_SPEC_BURST) merged.burst_ns = change.burst_ns;
  if (set & GPUSHARE_SPEC_PRIORITY) merged.priority = change.priority;
  if (set & GPUSHARE_SPEC_DELAY) merged.delay = change.delay;
  if (set & GPUSHARE_SPEC_H2D) merged.h2d = change.h2d;
  if (set & GPUSHARE_SPEC_D2H) merged.d2h = change.d2h;
  if (set & GPUSHARE_SPEC_ISOLATION) merged.isolation = change.isolation;
  if (set & GPUSHARE_SPEC_OVERSUBSCRIPTION) merged.oversubscription = change.oversubscription;
  if (set & GPUSHARE_SPEC_POLICY) std::memcpy(merged.policy, change.policy, sizeof(merged.policy));
  return merged;
}

std::string EndedBy(const gpushare_spec& base, const gpushare_spec& change) {
  gpushare_spec ended = base;
  ended.set &= ~MergeSpec(base, change).set & ~change.set;
  // Bytes and fraction of the same key replace each other.
  for (const uint32_t same : {kMemoryBits, kMemoryCapBits}) {
    if (change.set & same) ended.set &= ~same;
  }
  return ended.set == 0 ? "" : FormatSpec(ended);
}

}  // namespace gpushare::spec
