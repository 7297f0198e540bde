// SPDX-License-Identifier: Apache-2.0
// The policies that operators know by name, each a preset of TenantLimits.
//
//   GPUSHARE_ASSIGN_OR_RETURN(TenantLimits limits, ApplyPolicy("burst-share", {.share = 0.3}));
//   // limits.guarantee == 0.3, limits.cap == 1
//
// Pure functions over constant tables: safe from any thread.
#ifndef GPUSHARE_SCHED_POLICIES_H_
#define GPUSHARE_SCHED_POLICIES_H_

#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sched/arbiter.h"

namespace gpushare::sched {

// What the operator asked for; 0 means "not given".
struct PolicyRequest {
  double share = 0;   // [0, 1] of the device, promised
  double limit = 0;   // [0, 1] of the device, never exceeded; not below `share`
  double weight = 0;  // relative to other tenants
  int tenants = 0;    // a required share that is not given is 1 / tenants
};

enum class PolicyKind : uint8_t {
  kBestEffort,  // what is left over: low band, no guarantee, no cap
  kFixed,       // guarantee = cap = share
  kBurst,       // guarantee = share, cap = limit or the whole device
  kEqual,       // weight 1: an equal part for each tenant that has work
  kWeighted,    // weight as given
};

struct Policy {
  const char* name;     // as its system spells it, with '-'
  const char* origin;   // the system it comes from
  const char* meaning;  // one sentence
  PolicyKind kind;
};

// All policies, ordered by the system that they come from.
std::span<const Policy> Policies();

// Finds a policy by name. Case does not matter, and '_', '/' and ' ' stand for '-'. InvalidArgument lists the names.
absl::StatusOr<const Policy*> FindPolicy(std::string_view name);

// What an operator can give beside a policy's name.
enum class PolicyKey : uint8_t { kShare, kWeight, kLimit };
// Why `key` cannot be given with a policy of `kind`, because it would contradict what the policy means. Null if it can.
const char* Contradicts(PolicyKind kind, PolicyKey key);

// The preset of policy `name` for `request`. InvalidArgument says which field the policy wants, what
// was given and what is allowed.
absl::StatusOr<TenantLimits> ApplyPolicy(std::string_view name, const PolicyRequest& request);

// InvalidArgument unless an Arbiter can hold a tenant to `limits`; names the field and its range.
absl::Status CheckLimits(const TenantLimits& limits);

}  // namespace gpushare::sched

#endif  // GPUSHARE_SCHED_POLICIES_H_
