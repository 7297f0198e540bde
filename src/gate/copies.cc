// SPDX-License-Identifier: Apache-2.0
// Copies: one token bucket per direction, apart from the arbiter, and the supply from outside for all tenants together.
#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/interrupt.h"
#include "gate/state.h"

namespace gpushare::gate {
namespace {

// Up to a hundredth of a second's bytes are saved up; a larger copy leaves a debt.
constexpr double kSavedUp = 0.01;
constexpr double kLongestWait = 3600e9;  // ns; a slow limit and a huge copy would overflow Time
// Copies count as at most this large, whatever the caller asks the driver for, so that sums do not overflow.
constexpr uint64_t kLargestCopy = uint64_t{1} << 48;

double SecondsBetween(Time from, Time to) {
  return static_cast<double>((to - from).count()) * 1e-9;
}

int64_t Signed(uint64_t bytes) { return static_cast<int64_t>(std::min(bytes, kLargestCopy)); }

}  // namespace

void CopyLimit::Advance(Time now) {
  if (bytes_per_s <= 0) return;
  tokens = std::min(tokens + SecondsBetween(at, now) * bytes_per_s, bytes_per_s * kSavedUp);
  at = now;
}

Time CopyLimit::OpenAt(Time now) const {
  const double wait_ns = std::min(-tokens / bytes_per_s * 1e9 + 1, kLongestWait);
  return now + Nanos(static_cast<int64_t>(wait_ns));
}

bool Gate::LimitsCopies(CopyDirection direction) const {
  const CopySupply* const supply = state_->engine.options.copy_supply.get();
  if (supply != nullptr && supply->LimitsCopies(direction)) return true;
  const auto limits = [&](const TenantState& tenant) {
    return tenant.limits_copies[static_cast<size_t>(direction)].load(std::memory_order_relaxed);
  };
  return limits(*state_) || (state_->parent != nullptr && limits(*state_->parent));
}

Engine::Impl::CopyAsked::CopyAsked(TenantState& tenant, CopyDirection asked_direction)
    : direction(asked_direction),
      in_family{&tenant, &tenant.family_turns[static_cast<size_t>(direction)]},
      in_engine{&tenant, &tenant.family().copy_turns[static_cast<size_t>(direction)],
                &tenant.family_turns[static_cast<size_t>(direction)]} {}

Engine::Impl::CopyLook Engine::Impl::LookAtCopy(CopyAsked& copy, Time now) {
  const CopyDirection direction = copy.direction;
  const size_t d = static_cast<size_t>(direction);
  TenantState& tenant = *copy.in_engine.tenant;
  CopyLine& line = copy_lines[d];
  CopyLimit& limit = tenant.copies[d];
  CopySupply* const supply = options.copy_supply.get();
  const CopyState state =
      supply == nullptr ? CopyState::kUnlimited : supply->Copies(direction, now);
  if (!copy.though_suspended && (tenant.suspended || state == CopyState::kSuspended)) {
    LeaveCopyLines(copy);
    return {.suspended = true};
  }
  // A tenant that waits for its own limit leaves the lines, so that it blocks no other. A family that waits for its limit leaves
  // the line of the engine, in which it counts as one tenant.
  limit.Advance(now);
  if ((!tenant.shares() || tenant.parent != nullptr) && !limit.open()) {
    LeaveCopyLines(copy);
    return {.look_by = limit.OpenAt(now)};
  }
  TenantState& family = tenant.family();
  CopyLimit& shared = family.copies[d];
  const bool supplied = state == CopyState::kOpen || state == CopyState::kUsedUp;
  if (!tenant.shares() || (shared.bytes_per_s <= 0 && !supplied)) {
    LeaveFamilyLine(copy);
  } else {
    shared.Advance(now);
    family.family_lines[d].Join(&copy.in_family);
    const bool first = family.family_lines[d].First() == &copy.in_family;
    if (!shared.open() || (!first && !supplied)) {
      LeaveCopyLine(copy);
      // The others are woken when they become first.
      return {.look_by = first ? shared.OpenAt(now) : kNever};
    }
  }
  if (!supplied) {
    LeaveCopyLine(copy);
    return {.open = true};
  }
  line.Join(&copy.in_engine);
  if (line.First() != &copy.in_engine) return {};
  if (state == CopyState::kOpen) return {.open = true};
  copies_awaited[d] = true;
  return {.look_by = supply->AwaitCopies(direction, now)};
}

void Engine::Impl::LeaveCopyLine(CopyAsked& copy) {
  if (copy_lines[static_cast<size_t>(copy.direction)].Leave(&copy.in_engine)) {
    CopyLineChanged(copy.direction);
  }
}

void Engine::Impl::LeaveFamilyLine(CopyAsked& copy) {
  if (!copy.in_family.waits) return;
  CopyLine& line =
      copy.in_family.tenant->family().family_lines[static_cast<size_t>(copy.direction)];
  if (!line.Leave(&copy.in_family)) return;
  if (const CopyLine::Waiter* const first = line.First()) Wake(*first->tenant);
}

void Engine::Impl::CopyLineChanged(CopyDirection direction) {
  const size_t d = static_cast<size_t>(direction);
  if (const CopyLine::Waiter* const first = copy_lines[d].First()) {
    Wake(*first->tenant);
  } else if (std::exchange(copies_awaited[d], false)) {
    options.copy_supply->NobodyAwaitsCopies(direction);
  }
}

void Engine::Impl::ChargeCopy(TenantState& tenant, CopyDirection direction, int64_t bytes) {
  const size_t d = static_cast<size_t>(direction);
  const auto charge = [&](CopyLimit& limit) {
    if (limit.bytes_per_s > 0) limit.tokens -= static_cast<double>(bytes);
  };
  charge(tenant.copies[d]);
  if (tenant.shares()) {
    if (tenant.parent != nullptr) charge(tenant.parent->copies[d]);
    tenant.family().family_lines[d].Served(tenant.family_turns[d], static_cast<double>(bytes));
  }
  if (options.copy_supply == nullptr) return;
  options.copy_supply->ChargeCopy(direction, bytes);
  copy_lines[d].Served(tenant.family().copy_turns[d], static_cast<double>(bytes));
}

Verdict Gate::AdmitCopy(CopyDirection direction, uint64_t bytes, Time deadline,
                        Nanos longest_hold) {
  return PassCopy(direction, bytes, deadline, longest_hold, /*though_suspended=*/false);
}

Verdict Gate::AdmitCopyThoughSuspended(CopyDirection direction, uint64_t bytes) {
  return PassCopy(direction, bytes, kNever, kNoBound, /*though_suspended=*/true);
}

Verdict Gate::PassCopy(CopyDirection direction, uint64_t bytes, Time deadline, Nanos longest_hold,
                       bool though_suspended) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const size_t d = static_cast<size_t>(direction);
  Engine::Impl::CopyAsked copy(tenant, direction);
  copy.though_suspended = though_suspended;
  Time now = engine.clock.Now();
  const Time began = now;
  const Time passes_at = longest_hold == kNoBound ? kNever : After(began, longest_hold);
  std::optional<base::InterruptWatch> interrupt;  // made when it begins to wait
  CopyWait wait(tenant, &copy);
  for (;;) {
    uint32_t seen = 0;
    Time until = deadline;
    {
      const Section section(engine);
      wait.End();
      seen = tenant.page.wake.load(std::memory_order_acquire);
      if (tenant.removed) {
        engine.LeaveCopyLines(copy);
        return Verdict::kSuspended;
      }
      Engine::Impl::CopyLook look;
      try {
        look = engine.LookAtCopy(copy, now);
      } catch (
          const std::bad_alloc&) {  // it is in one line, and there is no memory for the next one
        engine.LeaveCopyLines(copy);
        throw;
      }
      const bool passes = !look.open && !look.suspended && now >= passes_at;
      if (look.open || passes) {
        if (passes) ++tenant.stats.held_past_bound;
        engine.ChargeCopy(tenant, direction, Signed(bytes));
        engine.LeaveCopyLines(copy);
        tenant.stats.copy_bytes[d] += bytes;
        tenant.stats.copy_throttled[d] += now - began;
        if (now > began && engine.recorder->on()) [[unlikely]] {
          engine.RecordCopyWait(tenant, direction, bytes, began, now);
        }
        return Verdict::kAdmitted;
      }
      if (now >= deadline || engine.supply_ended) {
        engine.LeaveCopyLines(copy);
        return engine.supply_ended ? Verdict::kEnded : Verdict::kDeadline;
      }
      if (!interrupt.has_value()) interrupt.emplace(now);
      if (interrupt->ended()) {
        engine.LeaveCopyLines(copy);
        return Verdict::kInterrupted;
      }
      until = std::min(until, interrupt->next());
      if (!look.suspended) until = std::min({until, passes_at, look.look_by});
      wait.Begin();
    }
    engine.clock.Wait(tenant.page.wake, seen, until, Nanos(0));
    now = engine.clock.Now();
    if (now < interrupt->next()) continue;
    {
      // The program may copy while it is asked; that copy must not wait behind this one.
      const Section section(engine);
      engine.LeaveCopyLines(copy);
    }
    interrupt->Ask(now);
    now = engine.clock.Now();
  }
}

void Gate::CopyRefused(CopyDirection direction, uint64_t bytes) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const size_t d = static_cast<size_t>(direction);
  const Time now = engine.clock.Now();
  const Section section(engine);
  TenantState& family = tenant.family();
  tenant.copies[d].Advance(now);
  family.copies[d].Advance(now);
  engine.ChargeCopy(tenant, direction, -Signed(bytes));
  tenant.stats.copy_bytes[d] -= std::min(bytes, tenant.stats.copy_bytes[d]);
  // Wakes those that wait because of its debt.
  engine.Wake(tenant);
  if (const CopyLine::Waiter* const first = family.family_lines[d].First()) {
    engine.Wake(*first->tenant);
  }
  engine.CopyLineChanged(direction);
}

}  // namespace gpushare::gate
