// SPDX-License-Identifier: Apache-2.0
// Grants: credit given to a tenant and taken back, what its launches spent of it, waiting for more.
#include <algorithm>
#include <bit>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {
namespace {

// Commands of unknown cost that a tenant may have in flight while others (or a cap) depend on it.
constexpr int kUnknownInFlight = 2;

int WaitBucket(Nanos wait) {
  const uint64_t us = static_cast<uint64_t>(std::max<int64_t>(wait.count() / 1000, 0));
  return us == 0 ? 0 : std::min(static_cast<int>(std::bit_width(us)) - 1, kWaitBuckets - 1);
}

}  // namespace

Nanos Engine::Impl::DeviceTime(Time host) const { return host.time_since_epoch() - submit_offset; }

void Engine::Impl::SyncLaunches(TenantState& tenant, Time now) {
  TenantPage& page = tenant.page;
  const uint64_t word = page.credit.load(std::memory_order_acquire);
  const uint32_t end = TenantPage::LaunchOf(word);
  uint32_t begin = tenant.synced_launch;
  if (((end - begin) & TenantPage::kLaunchMask) > TenantPage::kRecords) {
    begin = (end - TenantPage::kRecords) & TenantPage::kLaunchMask;  // the older ones are lost
  }
  scratch.clear();
  double total = 0;
  uint32_t at = begin;
  for (; at != end; at = (at + 1) & TenantPage::kLaunchMask) {
    const LaunchRecord record = LaunchRecord::Unpack(
        page.records[at & (TenantPage::kRecords - 1)].load(std::memory_order_acquire));
    if (record.launch != at) break;  // numbered, not written yet: its thread is between the two
    if (record.entry == LaunchRecord::kVoidEntry) continue;
    scratch.push_back(record);
    total += static_cast<double>(tenant.costs.cost_ns(record.entry));
  }
  tenant.synced_launch = at;
  const Time since = std::exchange(tenant.launching_since, now);
  if (scratch.empty()) return;

  // What was spent is charged to the launches in proportion to their costs, to the last nanosecond:
  // what is outstanding must come back to zero.
  const int64_t spent = tenant.given_ns - static_cast<int64_t>(TenantPage::CreditOf(word));
  int64_t left = spent - tenant.accounted_ns;
  tenant.accounted_ns = spent;
  tenant.stats.launches += scratch.size();
  const double per_cost = static_cast<double>(left) / std::max(total, 1.0);
  // No clock is read on the launch path: launches are taken to have been made at an even pace up to now,
  // from the one that came by the slow path if it is the first, else from the last time.
  const int64_t n = static_cast<int64_t>(scratch.size());
  const bool timed = page.timed_launch.load(std::memory_order_acquire) == scratch[0].launch;
  const Time first = timed ? Time(Nanos(page.timed_ns.load(std::memory_order_relaxed)))
                           : since + (now - since) / n;
  const Nanos pace = n > 1 ? (now - first) / (n - 1) : Nanos(0);
  for (size_t i = 0; i < scratch.size(); ++i) {
    const LaunchRecord& record = scratch[i];
    if (record.graph) ++tenant.stats.graph_launches;
    const float cost = tenant.costs.cost_ns(record.entry);
    const int64_t charge =
        i + 1 == scratch.size() ? left : static_cast<int64_t>(per_cost * static_cast<double>(cost));
    left -= charge;
    StreamGate& stream = *tenant.streams[record.stream];
    if (!stream.live) {
      arbiter.Settle(tenant.id, tenant.phase, Nanos(charge), Nanos(charge), 0, now);
      continue;
    }
    replay.Append(stream.replay, {record.entry, cost, tenant.costs.footprint(record.entry)},
                  DeviceTime(first + pace * static_cast<int64_t>(i)));
    if (record.unknown) {
      ++tenant.unknown_in_flight;
      ++stream.unmarked_unknown;
    }
    ++stream.unmarked;
    stream.unmarked_ns += charge;
  }
}

void Engine::Impl::GiveCredit(TenantState& tenant, Nanos amount, sched::Phase phase, Time now) {
  SyncLaunches(tenant, now);
  tenant.given_ns += amount.count();
  tenant.phase = phase;
  tenant.last_change = now;
  tenant.page.Add(static_cast<uint64_t>(amount.count()));
  tenant.last_word = tenant.page.credit.load(std::memory_order_relaxed);
  if (!tenant.open) {
    tenant.open = true;
    open_tenants.push_back(&tenant);
  }
}

void Engine::Impl::TakeCredit(TenantState& tenant, Time now) {
  const int64_t taken = static_cast<int64_t>(tenant.page.TakeAll());
  if (taken == 0) return;
  tenant.given_ns -= taken;
  arbiter.Return(tenant.id, tenant.phase, Nanos(taken), now);
}

void Engine::Impl::RunArbiter(Time now, const TenantState* self, WakeList& wakes) {
  grants.clear();
  next_run = arbiter.Run(now, grants);
  for (const sched::Grant& grant : grants) {
    TenantState& tenant = *tenants[grant.tenant];
    GiveCredit(tenant, grant.amount, grant.phase, now);
    tenant.grant_stands = grant.stands;
    tenant.page.wake.fetch_add(1, std::memory_order_release);
    if (&tenant != self || tenant.waiters > 1) wakes.push_back(&tenant.page.wake);
  }
  // A higher band began, or somebody waits for the device to drain: what was granted and not launched
  // comes back at once, and with it perhaps the turn of whoever waits.
  bool took = false;
  for (TenantState* tenant : open_tenants) {
    if (tenant->grant_stands || !arbiter.Closed(tenant->options.limits.band, now)) continue;
    if (TenantPage::CreditOf(tenant->page.credit.load(std::memory_order_relaxed)) == 0) continue;
    // Whoever waits for the device waits for those before it too: a thread that was just let through is
    // on its way, and would only ask again.
    if (tenant->waiters > 0 && arbiter.Draining()) continue;
    TakeCredit(*tenant, now);
    took = true;
  }
  if (took) RunArbiter(now, self, wakes);
}

void Engine::Impl::WakeAll(const WakeList& wakes) {
  for (const std::atomic<uint32_t>* word : wakes) clock.Wake(*word, 1 << 20);
}

bool Engine::Impl::NeedsPoke(Time when) const { return when < reconciler_wakes; }

void Engine::Impl::Poke() {
  poke.fetch_add(1, std::memory_order_release);
  clock.Wake(poke, 1);
}

bool Engine::Impl::MayAsk(const TenantState& tenant, bool cost_known) const {
  if (tenant.suspended) return false;
  if (cost_known) return true;
  const bool others_depend = arbiter.tenants() > 1 || tenant.options.limits.cap < 1;
  return !others_depend || tenant.unknown_in_flight < kUnknownInFlight;
}

Verdict Engine::Impl::WaitForGrant(TenantState& tenant, const GrantRequest& request,
                                   absl::FunctionRef<void(uint32_t launch, Time now)> spent) {
  enum class Next { kLeave, kRetry, kWait };
  Verdict verdict = Verdict::kAdmitted;
  bool asked = false, counted = false;
  Time now = clock.Now(), wait_began = kNever;
  for (;;) {
    WakeList wakes;
    Next next = Next::kWait;
    uint32_t seen = 0, launch = 0;
    bool needs_poke = false;
    {
      base::MutexLock lock(&mu);
      if (tenant.removed) {
        verdict = Verdict::kSuspended;
        next = Next::kLeave;
      } else if (!tenant.suspended && (asked || !request.own_grant) &&
                 tenant.page.Spend(request.charge, &launch)) {
        next = Next::kLeave;
        if (wait_began != kNever) {
          ++tenant.stats.waits;
          tenant.stats.throttled += now - wait_began;
          ++tenant.stats.wait_histogram[static_cast<size_t>(WaitBucket(now - wait_began))];
        }
        spent(launch, now);
      } else if (now >= request.deadline && counted) {  // even without time to wait it asks once
        verdict = Verdict::kDeadline;
        next = Next::kLeave;
      } else {
        seen = tenant.page.wake.load(std::memory_order_acquire);
        if (!counted) ++tenant.waiters;
        counted = true;
        TakeCredit(tenant, now);
        if (MayAsk(tenant, request.cost_known)) {
          arbiter.Block(tenant.id, Nanos(static_cast<int64_t>(request.charge)), request.exclusive,
                        now);
          asked = true;
          RunArbiter(now, &tenant, wakes);
          const uint64_t word = tenant.page.credit.load(std::memory_order_relaxed);
          if (TenantPage::CreditOf(word) >= request.charge) next = Next::kRetry;
        }
      }
      if (counted && next == Next::kLeave) {
        --tenant.waiters;
        if (verdict != Verdict::kAdmitted && tenant.waiters == 0 && !tenant.removed) {
          arbiter.Unblock(tenant.id, now);
          RunArbiter(now, &tenant, wakes);
        }
      }
      needs_poke = NeedsPoke(next_run);
    }
    WakeAll(wakes);
    if (needs_poke) Poke();
    if (next == Next::kLeave) return verdict;
    if (next == Next::kWait) {
      if (wait_began == kNever) wait_began = now;
      clock.Wait(tenant.page.wake, seen, request.deadline, options.spin);
    }
    now = clock.Now();
  }
}

}  // namespace gpushare::gate
