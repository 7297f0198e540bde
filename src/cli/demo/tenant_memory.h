// SPDX-License-Identifier: Apache-2.0
// The memory use of a tenant of the demonstration.
#ifndef GPUSHARE_CLI_DEMO_TENANT_MEMORY_H_
#define GPUSHARE_CLI_DEMO_TENANT_MEMORY_H_

#include <vector>

#include "absl/status/status.h"
#include "base/time.h"
#include "cli/demo/scenario.h"
#include "gpushare/allocator.h"

namespace gpushare::cli {

// Carries out a MemoryPlan. One object per tenant, called from the tenant's thread.
class TenantMemory {
 public:
  TenantMemory(const MemoryPlan& plan, const Allocator& allocator, Bytes quota)
      : plan_(plan), allocator_(allocator), quota_(quota) {}

  // Allocates the resident part.
  absl::Status Start(Time now);
  // Call it between passes: does what is due by `now`. A denial that the plan provokes is no error.
  absl::Status Continue(Time now);

 private:
  Bytes Part(double part) const {
    return Bytes(static_cast<uint64_t>(static_cast<double>(quota_.count()) * part));
  }

  const MemoryPlan plan_;
  const Allocator& allocator_;
  const Bytes quota_;
  std::vector<Allocation> resident_;
  Allocation workspace_;
  Time rotate_at_ = kNever, ask_at_ = kNever;
  int rotations_ = 0;
};

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_TENANT_MEMORY_H_
