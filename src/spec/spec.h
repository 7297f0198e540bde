// SPDX-License-Identifier: Apache-2.0
// Specs of virtual devices: text form, validity, and what they come to on a given GPU.
//
//   GPUSHARE_ASSIGN_OR_RETURN(gpushare_spec spec, ParseSpec("memory=8GiB,compute=30%"));
//   GPUSHARE_ASSIGN_OR_RETURN(Limits limits, ResolveSpec(spec, GPUSHARE_PRIORITY_NORMAL, capacity));
//
// The keys and ranges stand in gpushare/spec.h, the one place that documents them. Errors name the
// field, what was given and what is allowed. Pure functions.
#ifndef GPUSHARE_SPEC_SPEC_H_
#define GPUSHARE_SPEC_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpushare/c/gpushare.h"
#include "sched/arbiter.h"

namespace gpushare::spec {

inline constexpr size_t kMostSpecText = 4096;

absl::StatusOr<gpushare_spec> ParseSpec(std::string_view text);
// Of a valid spec; parses to the same spec, to the bit.
std::string FormatSpec(const gpushare_spec& spec);
absl::Status ValidateSpec(const gpushare_spec& spec);
absl::Status ValidateTenantName(std::string_view name);
// `base` with what `change` sets, less the keys that a new policy contradicts.
gpushare_spec MergeSpec(const gpushare_spec& base, const gpushare_spec& change);
// Those keys: of `base`, with their values, what `change` ends without naming it. "": nothing.
std::string EndedBy(const gpushare_spec& base, const gpushare_spec& change);

// A spec on a GPU: what the ledger, the gate and admission are told.
struct Limits {
  std::optional<uint64_t> memory;      // bytes; nothing: no quota
  std::optional<uint64_t> memory_cap;  // bytes, `memory` or more; nothing: it does not borrow
  sched::TenantLimits compute;
  double h2d_bytes_per_s = 0, d2h_bytes_per_s = 0;  // 0: no limit
};

// `priority` counts where the spec gives none. `capacity`: memory of the GPU less the reserve.
absl::StatusOr<Limits> ResolveSpec(const gpushare_spec& spec, gpushare_priority priority,
                                   uint64_t capacity);

// The priority whose band it is, and its word in a spec.
gpushare_priority PriorityOf(sched::Band band);
const char* PriorityName(sched::Band band);

}  // namespace gpushare::spec

#endif  // GPUSHARE_SPEC_SPEC_H_
