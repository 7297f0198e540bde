// SPDX-License-Identifier: Apache-2.0
// Copies: a token bucket a direction, apart from the arbiter.
#include <algorithm>

#include "gate/state.h"

namespace gpushare::gate {
namespace {

// A hundredth of a second may be saved up; a copy larger than that leaves a debt behind.
constexpr double kSavedUp = 0.01;
constexpr double kLongestWait = 3600e9;  // ns: what a slow limit and a huge copy come to is no Time

double SecondsBetween(Time from, Time to) {
  return static_cast<double>((to - from).count()) * 1e-9;
}

}  // namespace

bool Gate::LimitsCopies(CopyDirection direction) const {
  const CopySupply* const supply = state_->copy_supply.load(std::memory_order_acquire);
  if (supply != nullptr && supply->LimitsCopies(direction)) return true;
  return state_->limits_copies[static_cast<size_t>(direction)].load(std::memory_order_relaxed);
}

void Gate::SetCopySupply(std::shared_ptr<CopySupply> supply) {
  const Section section(state_->engine);
  state_->copy_supply.store(supply.get(), std::memory_order_release);
  state_->copy_supplies.push_back(std::move(supply));
  state_->engine.Wake(*state_);
}

bool TenantState::AdvanceCopies(CopyDirection direction, Time now) {
  CopyLimit& limit = copies[static_cast<size_t>(direction)];
  CopySupply* const supply = copy_supply.load(std::memory_order_relaxed);
  limit.supplied = supply != nullptr && supply->LimitsCopies(direction);
  if (limit.supplied) {
    limit.supplied_tokens += static_cast<double>(supply->TakeCopyBytes(direction, now));
  } else {
    limit.supplied_tokens = 0;  // what was copied without a limit is no debt
  }
  if (limit.bytes_per_s > 0) {
    limit.tokens = std::min(limit.tokens + SecondsBetween(limit.at, now) * limit.bytes_per_s,
                            limit.bytes_per_s * kSavedUp);
    limit.at = now;
  }
  return limit.limited();
}

Time TenantState::CopiesAt(CopyDirection direction, Time now) {
  const CopyLimit& limit = copies[static_cast<size_t>(direction)];
  if (limit.supplied && limit.supplied_tokens <= 0) {
    const double missing = std::min(1 - limit.supplied_tokens, 0x1p62);
    return copy_supply.load(std::memory_order_relaxed)
        ->WantCopyBytes(direction, static_cast<uint64_t>(missing), now);
  }
  const double wait_ns = std::min(-limit.tokens / limit.bytes_per_s * 1e9 + 1, kLongestWait);
  return now + Nanos(static_cast<int64_t>(wait_ns));
}

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
        const bool limited = tenant.AdvanceCopies(direction, now);
        const bool passes = limited && now >= passes_at && !limit.open();
        if (passes) ++tenant.stats.held_past_bound;
        if (limit.open() || passes) {
          limit.Take(static_cast<double>(bytes));
          tenant.stats.copy_bytes[d] += bytes;
          tenant.stats.copy_throttled[d] += now - began;
          if (now > began && engine.recorder->on()) [[unlikely]] {
            engine.RecordCopyWait(tenant, direction, bytes, began, now);
          }
          return Verdict::kAdmitted;
        }
        until = std::min({until, passes_at, tenant.CopiesAt(direction, now)});
      }
      if (now >= deadline) return Verdict::kDeadline;
      ++tenant.copies_waiting;
    }
    engine.clock.Wait(tenant.page.wake, seen, until, Nanos(0));
    now = engine.clock.Now();
    const Section section(engine);
    --tenant.copies_waiting;
  }
}

void Gate::CopyRefused(CopyDirection direction, uint64_t bytes) {
  TenantState& tenant = *state_;
  const size_t d = static_cast<size_t>(direction);
  const Section section(tenant.engine);
  if (tenant.AdvanceCopies(direction, tenant.engine.clock.Now())) {
    tenant.copies[d].Take(-static_cast<double>(bytes));
  }
  tenant.stats.copy_bytes[d] -= std::min(bytes, tenant.stats.copy_bytes[d]);
  tenant.engine.Wake(tenant);  // who waits for the debt of it
}

}  // namespace gpushare::gate
