// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/tenant_memory.h"

#include <utility>

#include "base/status_macros.h"

namespace gpushare::cli {

absl::Status TenantMemory::Start(Time now) {
  constexpr int kPieces = 3;  // weights, optimiser state, inputs
  for (int i = 0; i < kPieces; ++i) {
    GPUSHARE_ASSIGN_OR_RETURN(Allocation piece,
                              allocator_.Allocate(Part(plan_.resident / kPieces)));
    resident_.push_back(std::move(piece));
  }
  if (plan_.rotate_every > Nanos(0)) rotate_at_ = now + plan_.rotate_every;
  if (plan_.ask_every > Nanos(0)) ask_at_ = now + plan_.ask_every;
  return absl::OkStatus();
}

absl::Status TenantMemory::Continue(Time now) {
  if (now >= rotate_at_) {
    rotate_at_ = now + plan_.rotate_every;
    GPUSHARE_RETURN_IF_ERROR(workspace_.Free());
    // Sizes move up and down between the two bounds in steps of a quarter.
    constexpr int kSteps[] = {0, 1, 2, 3, 4, 3, 2, 1};
    const double part = kSteps[rotations_++ % 8] / 4.0;
    GPUSHARE_ASSIGN_OR_RETURN(
        workspace_,
        allocator_.Allocate(
            Part(plan_.workspace_least + part * (plan_.workspace_most - plan_.workspace_least))));
  }
  if (now >= ask_at_) {
    ask_at_ = now + plan_.ask_every;
    const absl::StatusOr<Allocation> too_much = allocator_.Allocate(Part(plan_.too_much));
    if (!absl::IsResourceExhausted(too_much.status())) {
      return too_much.ok() ? absl::InternalError("an allocation beyond the quota was not denied")
                           : too_much.status();
    }
  }
  return absl::OkStatus();
}

}  // namespace gpushare::cli
