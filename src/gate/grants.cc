// SPDX-License-Identifier: Apache-2.0
// Grants: giving credit to a tenant and taking it back, accounting for what its launches spent, and waiting for more.
#include <algorithm>
#include <bit>
#include <exception>
#include <new>
#include <utility>

#include "base/interrupt.h"
#include "base/process_barrier.h"
#include "gate/beside.h"
#include "gate/state.h"

namespace gpushare::gate {
namespace {

// Commands of unknown cost that a tenant may have in flight while other tenants or a cap depend on it.
constexpr int kUnknownInFlight = 2;
// If a wake-up takes longer than expected, the expectation rises by the difference divided by this.
constexpr int kWakesPerRise = 8;

int WaitBucket(Nanos wait) {
  const uint64_t us = static_cast<uint64_t>(std::max<int64_t>(wait.count() / 1000, 0));
  return us == 0 ? 0 : std::min(static_cast<int>(std::bit_width(us)) - 1, kWaitBuckets - 1);
}

// The requests of the calling thread that wait while the program is asked whether to go on waiting, the innermost first. A
// request that the program makes in that call must not stand behind them, since they go on only after the call returns.
struct AskedAbout {
  const GrantRequest* request;
  const AskedAbout* outer;
};
thread_local const AskedAbout* asked_about = nullptr;

class Asks {
 public:
  explicit Asks(const GrantRequest& request) : here_{&request, asked_about} {
    asked_about = &here_;
  }
  ~Asks() { asked_about = here_.outer; }
  Asks(const Asks&) = delete;
  Asks& operator=(const Asks&) = delete;

 private:
  const AskedAbout here_;
};

void Join(std::deque<const GrantRequest*>& line, const GrantRequest& request) {
  auto place = line.end();
  for (const AskedAbout* asked = asked_about; asked != nullptr && place == line.end();
       asked = asked->outer) {
    place = std::find(line.begin(), line.end(), asked->request);
  }
  line.insert(place, &request);
}

}  // namespace

Nanos Engine::Impl::DeviceTime(Time host) const { return host.time_since_epoch() - submit_offset; }

Time Engine::Impl::HostTime(Nanos device) const { return Time(device + submit_offset); }

// A shorter latency is adopted at once, a longer one only if it persists.
void Engine::Impl::WokenIn(Nanos latency) {
  const Nanos rise = std::max(latency - wake_latency, Nanos(0)) / kWakesPerRise;
  wake_latency = std::min(latency, wake_latency + rise);
  arbiter.SetWakeLatency(wake_latency);
}

Section::~Section() {
  Engine::Impl& engine = engine_;
  decltype(engine.to_wake) to_wake;
  to_wake.swap(engine.to_wake);
  const bool poke = std::exchange(engine.look_by, kNever) < engine.reconciler_wakes;
  engine.mu.Unlock();
  for (const std::atomic<uint32_t>* word : to_wake) engine.clock.Wake(*word, 1 << 20);
  if (poke) engine.Poke();
}

void Engine::Impl::Poke() {
  poke.fetch_add(1, std::memory_order_release);
  clock.Wake(poke, 1);
}

void Engine::Impl::Wake(TenantState& tenant) {
  tenant.page.wake.fetch_add(1, std::memory_order_release);
  try {
    to_wake.push_back(&tenant.page.wake);
  } catch (const std::bad_alloc&) {
    clock.Wake(tenant.page.wake, 1 << 20);  // under the lock, which the woken threads then wait for
  }
}

// Reads the records that the launch path wrote since the last call into `scratch`.
void Engine::Impl::ReadRecords(TenantState& tenant, uint32_t end) {
  uint32_t at = tenant.synced_launch;
  if (((end - at) & TenantPage::kLaunchMask) > LaunchRing::kRecords) {
    at = (end - LaunchRing::kRecords) & TenantPage::kLaunchMask;  // older records are lost
  }
  scratch.clear();
  for (; at != end; at = (at + 1) & TenantPage::kLaunchMask) {
    const LaunchRecord record =
        LaunchRecord::Unpack(tenant.ring->At(at).load(std::memory_order_acquire));
    if (record.launch != at) break;  // the launch has its number, but its record is not written yet
    if (record.entry != LaunchRecord::kNoEntry) scratch.push_back(record);
  }
  tenant.synced_launch = at;
}

void Engine::Impl::SyncLaunches(TenantState& tenant, Time now, Time until) {
  TenantPage& page = tenant.page;
  const uint64_t word = tenant.purse.Look();
  if (TenantPage::CreditOf(word) == 0) tenant.besides.Close(TenantPage::LaunchOf(word));
  ReadRecords(tenant, TenantPage::LaunchOf(word));
  const Time since = std::min(std::exchange(tenant.launching_since, now), until);
  if (scratch.empty()) return;

  // The spent credit is charged to the launches in proportion to their costs, down to the last nanosecond,
  // so that what is outstanding comes back to zero.
  double total = 0;
  for (const LaunchRecord& record : scratch) {
    total += static_cast<double>(tenant.costs->cost_ns(record.entry));
  }
  const int64_t spent = tenant.given_ns - static_cast<int64_t>(TenantPage::CreditOf(word));
  int64_t left = spent - tenant.accounted_ns;
  tenant.accounted_ns = spent;
  const double per_cost = static_cast<double>(left) / std::max(total, 1.0);
  // The launch path reads no clock. Launches are assumed to have been made at an even pace up to `until`: from the first
  // one if that took the slow path, else from the last call.
  const int64_t n = static_cast<int64_t>(scratch.size());
  const bool timed = page.timed_launch.load(std::memory_order_acquire) == scratch[0].launch;
  const Time first = timed ? Time(Nanos(page.timed_ns.load(std::memory_order_relaxed)))
                           : since + (until - since) / n;
  const Nanos pace = n > 1 ? std::max(until - first, Nanos(0)) / (n - 1) : Nanos(0);
  for (size_t i = 0; i < scratch.size(); ++i) {
    const LaunchRecord& record = scratch[i];
    const float cost = tenant.costs->cost_ns(record.entry);
    const int64_t charge =
        i + 1 == scratch.size() ? left : static_cast<int64_t>(per_cost * static_cast<double>(cost));
    left -= charge;
    const bool passed = tenant.passing && record.launch == tenant.passed_launch;
    if (passed) tenant.passing = false;
    const bool beside = tenant.besides.Has(record.launch);
    if (record.refused) {
      arbiter.Return(tenant.id, tenant.phase, Nanos(charge), now);
      tenant.given_ns -= charge;
      tenant.accounted_ns -= charge;
      UnknownDone(tenant, record.unknown ? 1 : 0);
      continue;
    }
    ++tenant.stats.launches;
    if (record.graph) ++tenant.stats.graph_launches;
    StreamGate& stream = *tenant.streams[record.stream];
    if (!stream.live || stream.leaving) {
      SettleAsPredicted(tenant, tenant.phase, charge, 0, record.unknown ? 1 : 0, now);
      continue;
    }
    const uint32_t known_parts = tenant.costs->parts(record.entry);
    const float footprint = tenant.costs->footprint(record.entry);
    bool is_studied = false;
    const KnownShape* const shape =
        record.graph ? GraphLaunched(tenant, record.entry, &is_studied) : nullptr;
    const bool long_graph =
        record.graph && shape == nullptr && IsOpaqueGraph(known_parts, footprint, cost);
    // While there is only one tenant, nothing of another can come between its commands, so a graph is measured like kernels.
    const bool opaque = long_graph && !record.exclusive && arbiter.tenants() > 1;
    const uint32_t commands = shape != nullptr ? static_cast<uint32_t>(shape->parts.size())
                              : long_graph     ? 1
                                               : std::max(known_parts, 1u);
    // A tenant with a cap pays for its own lateness, so its lengths count as guesses.
    const bool guess = record.unknown ||
                       tenant.costs->spread(record.entry) > meter::Replay::kVaries ||
                       tenant.capped();
    const bool sure = !record.graph && !record.unknown && footprint > 0 &&
                      tenant.costs->IsSure(record.entry, meter::Replay::kVaries);
    meter::Replay::Command command = {.entry = record.entry,
                                      .cost_ns = cost,
                                      .footprint = footprint,
                                      .opaque = opaque,
                                      .memory = footprint <= 0,
                                      .guess = guess,
                                      .sure = sure,
                                      .beside = beside,
                                      .studied = is_studied,
                                      .parts = commands,
                                      .level = record.graph ? 0 : stream.lane.Level()};
    const Nanos launched = DeviceTime(first + pace * static_cast<int64_t>(i));
    try {
      if (shape != nullptr && shape->branched != nullptr) {
        replay.AppendGraph(stream.replay, command, shape->branched, launched);
      }
      for (uint32_t part = 0; part < commands; ++part) {
        if (shape != nullptr) command.footprint = shape->parts[part].footprint;
        command.cost_ns = shape != nullptr ? cost * shape->parts[part].length
                                           : cost / static_cast<float>(commands);
        replay.Append(stream.replay, command, launched);
      }
    } catch (const std::bad_alloc&) {
      // A launch that cannot be measured is settled as predicted.
      SettleAsPredicted(tenant, tenant.phase, charge, 0, record.unknown ? 1 : 0, now);
      continue;
    }
    if (record.unknown) ++stream.unmarked_unknown;
    stream.unmarked_passed |= passed;
    ++stream.unmarked;
    stream.unmarked_ns += charge;
  }
  tenant.besides.Synced(tenant.synced_launch);
}

void Engine::Impl::GiveCredit(TenantState& tenant, Nanos amount, sched::Phase phase, Time now,
                              bool beside) {
  SyncLaunches(tenant, now);
  // Opened first, since any thread may spend the credit as soon as it is there.
  if (beside) tenant.besides.Open(TenantPage::LaunchOf(tenant.purse.Look()));
  tenant.given_ns += amount.count();
  tenant.phase = phase;
  tenant.last_change = tenant.granted_at = now;
  tenant.purse.Add(static_cast<uint64_t>(amount.count()));
  tenant.last_word = tenant.purse.Look();
  LookBy(now + SilenceOf(tenant));  // no other thread may come to close what it launches
  if (!tenant.open) {
    open_tenants.push_back(&tenant);  // AddTenant() has reserved room
    tenant.open = true;
  }
}

void Engine::Impl::TakeCredit(TenantState& tenant, Time now) {
  const int64_t taken = static_cast<int64_t>(tenant.purse.TakeAll());
  tenant.besides.Close(TenantPage::LaunchOf(tenant.purse.Look()));
  if (taken == 0) return;
  tenant.given_ns -= taken;
  arbiter.Return(tenant.id, tenant.phase, Nanos(taken), now);
}

// A barrier takes a microsecond or a few under the lock, so one is used for all tenants.
template <typename Which>
bool Engine::Impl::TakeCreditOf(const Which& which, Time now) {
  taken_from.clear();
  bool stopped = false;
  for (TenantState* tenant : open_tenants) {
    if (!which(*tenant) || TenantPage::CreditOf(tenant->purse.Look()) == 0) continue;
    taken_from.push_back(tenant);  // AddTenant() has reserved room
  }
  if (taken_from.size() > 1) {
    for (TenantState* tenant : taken_from) stopped |= tenant->purse.StopSpending();
    if (stopped) base::ProcessBarrier();
  }
  bool took = false;
  for (size_t i = 0; i < taken_from.size(); ++i) {
    TenantState& tenant = *taken_from[i];
    // Taking the credit of the tenants before it may have changed the answer.
    if (i == 0 || which(tenant)) {
      TakeCredit(tenant, now);
      took = true;
    } else {
      tenant.purse.LetSpend();
    }
  }
  return took;
}

void Engine::Impl::TakeAllCredit(Time now) {
  TakeCreditOf([](const TenantState&) { return true; }, now);
}

bool Engine::Impl::MayHandOut(Time now) {
  if (options.supply == nullptr) return true;
  Supply::Report report;
  for (const auto& tenant : tenants) {
    if (tenant == nullptr || tenant->waiting.empty()) continue;
    report.wanted = Nanos(static_cast<int64_t>(tenant->waiting.front()->charge));
    break;
  }
  const sched::Arbiter::Totals totals = arbiter.totals();
  report.charged = totals.charged;
  report.outstanding = totals.unsettled;
  report.ends = IsUnsure() ? kNever : totals.ends;
  report.ended = measured_until;
  const Supply::Answer answer = options.supply->Tell(report, now);
  supply_bounded = answer.bounded;
  arbiter.SetBelow(answer.below);
  LookBy(answer.look_by);
  if (answer.revoke) {
    TakeAllCredit(now);
  }
  if (answer.ended && !std::exchange(supply_ended, true)) {
    for (const auto& tenant : tenants) {
      if (tenant != nullptr) Wake(*tenant);
    }
  }
  return answer.open;
}

void Engine::Impl::RunArbiter(Time now, const TenantState* self) {
  grants.clear();
  next_run = kNever;
  if (MayHandOut(now)) {
    LooksAhead ahead(*this);
    next_run = arbiter.Run(now, grants, ahead.Prepare(now) ? &ahead : nullptr);
    LookBy(next_run);
  }
  for (const sched::Grant& grant : grants) {
    TenantState& tenant = *tenants[grant.tenant];
    GiveCredit(tenant, grant.amount, grant.phase, now, grant.beside);
    tenant.grant_stands = grant.stands;
    if (&tenant != self || tenant.waiting.size() > 1) {
      Wake(tenant);
    } else {
      tenant.page.wake.fetch_add(1, std::memory_order_release);
    }
  }
  // With an unbounded supply, the work in flight here keeps other processes off the device, and it has just grown: report it.
  if (!grants.empty() && options.supply != nullptr && !supply_bounded) MayHandOut(now);
  // If a higher band began, or a tenant waits for the device to drain, credit that was granted and not spent
  // comes back at once. That may let a waiting tenant in.
  const auto revoked = [&](const TenantState& tenant) {
    mu.AssertHeld();
    if (tenant.grant_stands || !arbiter.Closed(tenant.options.limits.band, now)) return false;
    // A tenant that waits for the drained device also waits for the grants before it. A thread that was just admitted is
    // about to launch, and would only ask again if its credit were taken.
    return tenant.waiting.empty() || !arbiter.Draining();
  };
  if (TakeCreditOf(revoked, now)) RunArbiter(now, self);
}

bool Engine::Impl::StandsForHost(const TenantState& tenant, Time now) const {
  return std::any_of(marked_streams.begin(), marked_streams.end(), [&](const StreamGate* stream) {
    return stream->tenant == &tenant && stream->held_up_since != kNever &&
           now - stream->held_up_since >= options.deadlock_hold;
  });
}

bool Engine::Impl::MayAsk(const TenantState& tenant, bool cost_known, Time now) const {
  if (tenant.suspended) return false;
  const sched::TenantLimits& limits = tenant.options.limits;
  const bool bounded = tenant.capped() || (options.supply != nullptr && supply_bounded);
  if (cost_known || (limits.band == sched::Band::kHigh && !bounded)) return true;
  const bool others_depend = arbiter.tenants() > 1 || tenant.capped() || options.supply != nullptr;
  if (!others_depend || tenant.unknown_in_flight < kUnknownInFlight) return true;
  // The work in flight may be behind a wait for the host, and the host may wait for this call to return.
  return StandsForHost(tenant, now);
}

// If the host runs out of memory while a request waits, the request leaves the line and gets back what it has paid, so that the
// tenant's other threads go on.
class Engine::Impl::LineGuard {
 public:
  LineGuard(Impl& engine, TenantState& tenant, const GrantRequest& request, const bool* counted,
            const bool* paid, const uint32_t* launch)
      : engine_(engine),
        tenant_(tenant),
        request_(request),
        counted_(*counted),
        paid_(*paid),
        launch_(*launch) {}
  LineGuard(const LineGuard&) = delete;
  LineGuard& operator=(const LineGuard&) = delete;
  ~LineGuard() {
    if (std::uncaught_exceptions() == exceptions_) return;
    engine_.mu.AssertHeld();
    const Time now = engine_.clock.Now();
    if (paid_) {
      // The launch number is used up, so it gets a record that stands for no launch.
      tenant_.ring->Put({launch_, 0, LaunchRecord::kNoEntry, false, false});
      tenant_.given_ns -= static_cast<int64_t>(request_.charge);
      tenant_.passing = tenant_.passing && tenant_.passed_launch != launch_;
      engine_.arbiter.Return(tenant_.id, tenant_.phase,
                             Nanos(static_cast<int64_t>(request_.charge)), now);
      engine_.UnknownDone(tenant_, request_.cost_known ? 0 : 1);
    }
    if (counted_) {
      const bool first = tenant_.waiting.front() == &request_;
      std::erase(tenant_.waiting, &request_);
      if (first && !tenant_.removed) engine_.arbiter.Unblock(tenant_.id, now);
      if (first && !tenant_.waiting.empty()) engine_.Wake(tenant_);
    }
    engine_.LookBy(now);  // the reconciler finds out who may go on
  }

 private:
  Impl& engine_;
  TenantState& tenant_;
  const GrantRequest& request_;
  const bool& counted_;
  const bool& paid_;
  const uint32_t& launch_;
  const int exceptions_ = std::uncaught_exceptions();
};

Verdict Engine::Impl::WaitForGrant(TenantState& tenant, const GrantRequest& request,
                                   absl::FunctionRef<void(uint32_t launch, Time now)> spent) {
  enum class Next { kLeave, kRetry, kWait };
  Verdict verdict = Verdict::kAdmitted;
  bool paid = false;
  bool asked = false, counted = false, passed = false, for_others = false, might_ask = false;
  Time now = clock.Now(), wait_began = kNever;
  Time slept_from = now, woke = now;
  const Time began = now;
  uint32_t seen = 0;
  base::InterruptWatch interrupt(now);
  for (;;) {
    bool interrupted = interrupt.ended();
    if (!interrupted && now >= interrupt.next()) {
      const Asks asks(request);
      interrupted = interrupt.Ask(now);
    }
    Next next = Next::kWait;
    uint32_t launch = 0;
    Time until = std::min(request.deadline, interrupt.next());
    {
      const Section section(*this);
      const LineGuard guard(*this, tenant, request, &counted, &paid, &launch);
      if (counted && tenant.waiting.front() == &request) {
        const Bounds bounds = BoundsOf(tenant, request, began, now);
        if (now >= std::min(bounds.own, bounds.others)) {
          // The work is charged like any other, before it is admitted. The debt is paid later.
          const Nanos charge(static_cast<int64_t>(request.charge));
          TakeCredit(tenant, now);
          arbiter.Unblock(tenant.id, now);
          GiveCredit(tenant, charge, arbiter.Charge(tenant.id, charge, now), now);
          if (now < bounds.own) {
            Pass(tenant, now);
            for_others = true;
          }
          ++tenant.stats.held_past_bound;
          passed = true;
        }
      }
      if (tenant.removed) {
        verdict = Verdict::kSuspended;
        next = Next::kLeave;
      } else if (request.called_off != nullptr && request.called_off->load()) {
        verdict = Verdict::kCalledOff;
        next = Next::kLeave;
      } else if (interrupted) {
        verdict = Verdict::kInterrupted;
        next = Next::kLeave;
      } else if ((passed ||
                  ((asked || !request.own_grant) && MayAsk(tenant, request.cost_known, now))) &&
                 tenant.purse.Spend(request.charge, &launch)) {
        paid = true;
        if (!request.cost_known) ++tenant.unknown_in_flight;
        if (for_others) {
          tenant.passed_launch = launch;
          tenant.passing = true;
        }
        next = Next::kLeave;
        if (wait_began != kNever) {
          // The thread slept when the grant came and has only woken up since, so this is a wake-up's latency.
          if (!passed && tenant.granted_at < woke &&
              tenant.granted_at - slept_from > options.spin) {
            WokenIn(now - tenant.granted_at);
          }
          ++tenant.stats.waits;
          tenant.stats.throttled += now - wait_began;
          ++tenant.stats.wait_histogram[static_cast<size_t>(WaitBucket(now - wait_began))];
          if (recorder->on()) [[unlikely]] {
            RecordWait(tenant, request, wait_began, now, /*gave_up=*/false);
          }
        }
        spent(launch, now);
        paid = false;
        // A short silence counts from now, not from the reconciler's next look.
        if (SilenceOf(tenant) < kSilence) {
          tenant.last_word = tenant.purse.Look();
          tenant.last_change = now;
        }
      } else if (supply_ended) {
        verdict = Verdict::kEnded;
        next = Next::kLeave;
      } else if (now >= request.deadline && counted) {  // asks once, even past the deadline
        verdict = Verdict::kDeadline;
        next = Next::kLeave;
      } else {
        const bool woken = seen != tenant.page.wake.load(std::memory_order_acquire) || !counted;
        seen = tenant.page.wake.load(std::memory_order_acquire);
        if (!counted) Join(tenant.waiting, request);
        counted = true;
        if (tenant.waiting.front() == &request) {
          // A stream that begins to wait for the host meanwhile does not wake this request, so it looks from time to time.
          const Bounds bounds = BoundsOf(tenant, request, began, now);
          until = std::min({until, bounds.own, bounds.others, now + options.deadlock_hold});
        }
        const bool may_ask = MayAsk(tenant, request.cost_known, now);
        const bool first_time = may_ask && !std::exchange(might_ask, may_ask);
        if ((woken || first_time) && tenant.waiting.front() == &request && may_ask) {
          TakeCredit(tenant, now);
          arbiter.Block(tenant.id, Nanos(static_cast<int64_t>(request.charge)), request.exclusive,
                        now, request.at_once, request.cost_known);
          asked = true;
          RunArbiter(now, &tenant);
          if (TenantPage::CreditOf(tenant.purse.Look()) >= request.charge) next = Next::kRetry;
        }
      }
      if (verdict != Verdict::kAdmitted && wait_began != kNever && recorder->on()) [[unlikely]] {
        RecordWait(tenant, request, wait_began, now, /*gave_up=*/true);
      }
      if (counted && next == Next::kLeave) {
        const bool first = tenant.waiting.front() == &request;
        std::erase(tenant.waiting, &request);
        if (first && verdict != Verdict::kAdmitted && !tenant.removed) {
          arbiter.Unblock(tenant.id, now);
          RunArbiter(now, &tenant);
        }
        if (first && !tenant.waiting.empty()) Wake(tenant);
      }
    }
    if (next == Next::kLeave) return verdict;
    if (next == Next::kWait) {
      if (wait_began == kNever) wait_began = now;
      slept_from = now;
      clock.Wait(tenant.page.wake, seen, until, options.spin);
      woke = now = clock.Now();
      continue;
    }
    now = clock.Now();
  }
}

}  // namespace gpushare::gate
