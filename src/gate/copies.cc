// SPDX-License-Identifier: Apache-2.0
// Copies: a token bucket a direction, apart from the arbiter.
#include <algorithm>

#include "gate/state.h"

namespace gpushare::gate {

Verdict Gate::AdmitCopy(CopyDirection direction, uint64_t bytes, Time deadline,
                        Nanos longest_hold) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const size_t d = static_cast<size_t>(direction);
  Time now = engine.clock.Now();
  const Time began = now;
  const Time passes_at = longest_hold == kNoBound ? kNever : After(began, longest_hold);
  for (;;) {
    uint32_t seen = 0;
    Time until = deadline;
    {
      const Section section(engine);
      if (tenant.removed) return Verdict::kSuspended;
      CopyLimit& limit = tenant.copies[d];
      seen = tenant.page.wake.load(std::memory_order_acquire);
      if (!tenant.suspended) {
        if (limit.bytes_per_s > 0) {
          const double elapsed = static_cast<double>((now - limit.at).count()) * 1e-9;
          // A hundredth of a second may be saved up; a copy larger than that leaves a debt behind.
          limit.tokens =
              std::min(limit.tokens + elapsed * limit.bytes_per_s, limit.bytes_per_s * 0.01);
          limit.at = now;
        }
        const bool passes = now >= passes_at && limit.tokens <= 0 && limit.bytes_per_s > 0;
        if (passes) ++tenant.stats.held_past_bound;
        if (limit.bytes_per_s <= 0 || limit.tokens > 0 || passes) {
          if (limit.bytes_per_s > 0) limit.tokens -= static_cast<double>(bytes);
          tenant.stats.copy_bytes[d] += bytes;
          tenant.stats.copy_throttled[d] += now - began;
          if (now > began && engine.recorder->on()) [[unlikely]] {
            engine.RecordCopyWait(tenant, direction, bytes, began, now);
          }
          return Verdict::kAdmitted;
        }
        // An hour at most, and then it looks again: what a slow limit and a huge copy come to is no Time.
        const double wait_ns = std::min(-limit.tokens / limit.bytes_per_s * 1e9 + 1, 3600e9);
        until = std::min({until, passes_at, now + Nanos(static_cast<int64_t>(wait_ns))});
      }
      if (now >= deadline) return Verdict::kDeadline;
    }
    engine.clock.Wait(tenant.page.wake, seen, until, Nanos(0));
    now = engine.clock.Now();
  }
}

void Gate::CopyRefused(CopyDirection direction, uint64_t bytes) {
  TenantState& tenant = *state_;
  const size_t d = static_cast<size_t>(direction);
  const Section section(tenant.engine);
  CopyLimit& limit = tenant.copies[d];
  if (limit.bytes_per_s > 0) limit.tokens += static_cast<double>(bytes);
  tenant.stats.copy_bytes[d] -= std::min(bytes, tenant.stats.copy_bytes[d]);
  tenant.engine.Wake(tenant);  // who waits for the debt of it
}

bool Gate::LimitsCopies(CopyDirection direction) const {
  return state_->limits_copies[static_cast<size_t>(direction)].load(std::memory_order_relaxed);
}

}  // namespace gpushare::gate
