// SPDX-License-Identifier: Apache-2.0
// The way of a launch through the gate: credit, markers, asking the arbiter, waiting.
#include <algorithm>
#include <bit>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {
namespace {

// Commands of unknown cost that a tenant may have in flight while others (or a cap) depend on it.
constexpr int kUnknownInFlight = 2;

constexpr float kLongGraphNs = 500e3f;

uint64_t ToNs(float ns) { return static_cast<uint64_t>(std::max(ns, 1.0f)); }

int WaitBucket(Nanos wait) {
  const uint64_t us = static_cast<uint64_t>(std::max<int64_t>(wait.count() / 1000, 0));
  return us == 0 ? 0 : std::min(static_cast<int>(std::bit_width(us)) - 1, kWaitBuckets - 1);
}

}  // namespace

Nanos GateStats::WaitQuantile(double q) const {
  uint64_t total = 0;
  for (uint64_t n : wait_histogram) total += n;
  if (total == 0) return Nanos(0);
  const double want = std::clamp(q, 0.0, 1.0) * static_cast<double>(total);
  uint64_t seen = 0;
  for (int i = 0; i < kWaitBuckets; ++i) {
    seen += wait_histogram[static_cast<size_t>(i)];
    if (static_cast<double>(seen) >= want) return Micros(int64_t{1} << (i + 1));
  }
  return Micros(int64_t{1} << kWaitBuckets);
}

// ---- Books of one tenant ----

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

// ---- Markers ----

void Engine::Impl::CloseOpen(TenantState& tenant, StreamGate* only, uint64_t lease) {
  Marker todo[16];
  int count = 0;
  const Time began = clock.Now();
  {
    base::MutexLock lock(&mu);
    SyncLaunches(tenant, began);
    for (const auto& stream : tenant.streams) {
      if (!stream->live || stream->unmarked == 0 || stream->marking) continue;
      if (only != nullptr && stream.get() != only) continue;
      if (count == 16) break;  // the rest is marked next time
      // The boundary is drawn now: what others launch while the driver is called comes behind it.
      replay.Boundary(stream->replay);
      stream->marking = true;
      Marker& marker = todo[count++];
      marker.id = next_marker++;
      marker.stream = stream.get();
      marker.commands = std::exchange(stream->unmarked, 0);
      marker.unknown = std::exchange(stream->unmarked_unknown, 0);
      marker.charged_ns = std::exchange(stream->unmarked_ns, 0);
      marker.phase = tenant.phase;
      marker.lease = lease;
      arbiter.Launched(tenant.id, marker.commands, began);
    }
  }
  if (count == 0) return;
  for (int i = 0; i < count; ++i) {
    todo[i].event = RecordMarker(todo[i].stream->handle, &todo[i].recorded);
  }
  const Time now = clock.Now();
  bool needs_poke = false;
  {
    base::MutexLock lock(&mu);
    for (int i = 0; i < count; ++i) AddMarker(todo[i], now);
    needs_poke = NeedsPoke(NextPoll(now));
  }
  if (needs_poke) Poke();
}

// Hands a marker whose boundary is drawn to the reconciler; without an event, it is settled as predicted.
void Engine::Impl::AddMarker(const Marker& marker, Time now) {
  StreamGate& stream = *marker.stream;
  TenantState& tenant = *stream.tenant;
  stream.marking = false;
  if (!stream.live) {
    if (marker.event != nullptr) events.Give(marker.event);
    return;
  }
  if (marker.event != nullptr) {
    markers.push_back(marker);
    ++stream.markers_pending;
    ++tenant.stats.markers;
    return;
  }
  replay.DropBoundary(stream.replay);
  SettleAsPredicted(tenant, marker.phase, marker.charged_ns, marker.commands, marker.unknown, now);
}

void Engine::Impl::SettleAsPredicted(TenantState& tenant, sched::Phase phase, int64_t charged_ns,
                                     int commands, int unknown, Time now) {
  arbiter.Settle(tenant.id, phase, Nanos(charged_ns), Nanos(charged_ns), commands, now);
  UnknownDone(tenant, unknown);
}

driver::Event Engine::Impl::RecordMarker(driver::Stream stream, Time* submitted) {
  driver::Driver::Capture capture = driver::Driver::Capture::kNone;
  const driver::Result asked = driver.StreamCapture(stream, &capture);
  if (asked != driver::Result::kSuccess && asked != driver::Result::kNotSupported) return nullptr;
  if (capture != driver::Driver::Capture::kNone) return nullptr;
  const driver::Event event = events.Take();
  if (event == nullptr) return nullptr;
  const driver::Result result = driver.RecordEvent(event, stream);
  *submitted = clock.Now();
  if (result == driver::Result::kSuccess) return event;
  events.Give(event);
  return nullptr;
}

void Engine::Impl::SettleUnmarked(TenantState& tenant, StreamGate& stream, Time now) {
  if (stream.unmarked == 0) return;
  replay.Abandon(stream.replay);
  arbiter.Launched(tenant.id, stream.unmarked, now);
  SettleAsPredicted(tenant, tenant.phase, std::exchange(stream.unmarked_ns, 0),
                    std::exchange(stream.unmarked, 0), std::exchange(stream.unmarked_unknown, 0),
                    now);
}

void Engine::Impl::UnknownDone(TenantState& tenant, int commands) {
  if (commands == 0) return;
  tenant.unknown_in_flight -= commands;
  if (tenant.waiters > 0) tenant.page.wake.fetch_add(1, std::memory_order_release);
}

void Engine::Impl::MarkStart(Marker marker) {
  marker.event = RecordMarker(marker.stream->handle, &marker.recorded);
  const Time now = clock.Now();
  base::MutexLock lock(&mu);
  AddMarker(marker, now);
  marker.stream->tenant->launching_since = now;  // the launch that it is for comes after it
}

// ---- The gate ----

Admission Gate::Admit(StreamGate& stream, const Work& work, Time deadline) {
  TenantState& tenant = *state_;
  const uint64_t context = stream.context.load(std::memory_order_relaxed);
  const meter::CostModel::Prediction cost = tenant.costs.Predict(work.key, context, work.footprint);
  if (cost.settled && (work.kind == Work::Kind::kKernel || cost.cost_ns < kLongGraphNs) &&
      work.kind != Work::Kind::kCooperative) {
    const float factor = tenant.page.charge_factor.load(std::memory_order_relaxed);
    uint32_t launch;
    if (tenant.page.Spend(ToNs(cost.cost_ns * factor), &launch)) {
      tenant.page.Record(
          {launch, stream.index, cost.entry, false, work.kind == Work::Kind::kGraph});
      stream.context.store(meter::CostModel::Next(context, work.key), std::memory_order_relaxed);
      return {Verdict::kAdmitted, &stream, launch, false};
    }
  }
  return AdmitSlow(stream, work, deadline);
}

Admission Gate::AdmitSlow(StreamGate& stream, const Work& work, Time deadline) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const uint64_t context = stream.context.load(std::memory_order_relaxed);
  // One prediction for the whole wait: the grant is asked for and spent by the same figure.
  const meter::CostModel::Prediction cost = tenant.costs.Predict(work.key, context, work.footprint);
  const uint64_t charge =
      ToNs(cost.cost_ns * tenant.page.charge_factor.load(std::memory_order_relaxed));
  const bool exclusive = engine.WantsDevice(work, cost);
  // Such a command is not covered by credit that was given for others.
  const bool own_grant = !cost.known || exclusive;

  // What the spent grant launched gets its marker here, where the host stops anyway.
  engine.CloseOpen(tenant, nullptr);

  enum class Next { kSubmit, kGiveUp, kRetry, kWait };
  Verdict verdict = Verdict::kAdmitted;
  bool asked = false, counted = false;
  Marker start;
  uint32_t launch = 0;
  Time now = engine.clock.Now(), wait_began = kNever;
  for (;;) {
    Engine::Impl::WakeList wakes;
    Next next = Next::kWait;
    uint32_t seen = 0;
    bool needs_poke = false;
    {
      base::MutexLock lock(&engine.mu);
      if (tenant.removed) {
        verdict = Verdict::kSuspended;
        next = Next::kGiveUp;
      } else if (!tenant.suspended && (asked || !own_grant) && tenant.page.Spend(charge, &launch)) {
        next = Next::kSubmit;
        if (stream.markers_pending == 0 && stream.unmarked == 0 && !stream.marking) {
          start.id = engine.next_marker++;
          start.stream = &stream;
          start.phase = tenant.phase;
          stream.marking = true;
          engine.replay.Boundary(stream.replay);
        }
        // What was hardly measured yet is measured in a batch of its own.
        if (!cost.settled) engine.TakeCredit(tenant, now);
        if (wait_began != kNever) {
          ++tenant.stats.waits;
          tenant.stats.throttled += now - wait_began;
          ++tenant.stats.wait_histogram[static_cast<size_t>(WaitBucket(now - wait_began))];
        }
      } else if (now >= deadline && counted) {  // even without time to wait it asks once
        verdict = Verdict::kDeadline;
        next = Next::kGiveUp;
      } else {
        seen = tenant.page.wake.load(std::memory_order_acquire);
        if (!counted) ++tenant.waiters;
        counted = true;
        engine.TakeCredit(tenant, now);
        if (engine.MayAsk(tenant, cost.known)) {
          engine.arbiter.Block(tenant.id, Nanos(static_cast<int64_t>(charge)), exclusive, now);
          asked = true;
          engine.RunArbiter(now, &tenant, wakes);
          if (TenantPage::CreditOf(tenant.page.credit.load(std::memory_order_relaxed)) >= charge) {
            next = Next::kRetry;
          }
        }
      }
      if (counted && (next == Next::kSubmit || next == Next::kGiveUp)) {
        --tenant.waiters;
        counted = false;
        if (next == Next::kGiveUp && tenant.waiters == 0 && !tenant.removed) {
          engine.arbiter.Unblock(tenant.id, now);
          engine.RunArbiter(now, &tenant, wakes);
        }
      }
      needs_poke = engine.NeedsPoke(engine.next_run);
    }
    engine.WakeAll(wakes);
    if (needs_poke) engine.Poke();
    if (next == Next::kSubmit || next == Next::kGiveUp) break;
    if (next == Next::kWait) {
      if (wait_began == kNever) wait_began = now;
      engine.clock.Wait(tenant.page.wake, seen, deadline, engine.options.spin);
    }
    now = engine.clock.Now();
  }
  if (verdict != Verdict::kAdmitted) return {verdict, nullptr, 0, false};
  if (start.stream != nullptr) engine.MarkStart(start);
  // Written last: until then the replay does not look at this launch, nor at those behind it.
  tenant.page.Record(
      {launch, stream.index, cost.entry, !cost.known, work.kind == Work::Kind::kGraph});
  stream.context.store(meter::CostModel::Next(context, work.key), std::memory_order_relaxed);
  return {Verdict::kAdmitted, &stream, launch, true};
}

void Gate::Complete(const Admission& admission, bool submitted) {
  if (submitted && !admission.timed) return;
  if (submitted) {
    const Time now = state_->engine.clock.Now();
    state_->page.timed_ns.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    state_->page.timed_launch.store(admission.slot, std::memory_order_release);
    return;
  }
  // The driver refused: nothing runs, so the record is void and the charge goes back when the grant is
  // settled (spent credit that no record explains is charged to the others in it, at most one command).
  state_->page.Record(
      {admission.slot, admission.stream->index, LaunchRecord::kVoidEntry, false, false});
}

// Cooperative launches need the device drained. A long graph gets it too while others contend: its kernels
// would alternate with theirs in an order that no marker shows, and the drain is short against it.
bool Engine::Impl::WantsDevice(const Work& work, const meter::CostModel::Prediction& cost) {
  if (work.kind == Work::Kind::kCooperative) return true;
  if (work.kind != Work::Kind::kGraph) return false;
  if (cost.known && cost.cost_ns < kLongGraphNs) return false;
  base::MutexLock lock(&mu);
  return arbiter.tenants() > 1;
}

bool Engine::Impl::MayAsk(const TenantState& tenant, bool cost_known) const {
  if (tenant.suspended) return false;
  if (cost_known) return true;
  const bool others_depend = arbiter.tenants() > 1 || tenant.options.limits.cap < 1;
  return !others_depend || tenant.unknown_in_flight < kUnknownInFlight;
}

// ---- Waiting for the device ----

void Gate::Synchronizing(StreamGate* stream) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  engine.CloseOpen(tenant, stream);
  const Time now = engine.clock.Now();
  Engine::Impl::WakeList wakes;
  bool needs_poke = false;
  {
    base::MutexLock lock(&engine.mu);
    if (tenant.waiters > 0) return;  // another thread of the tenant goes on launching
    engine.TakeCredit(tenant, now);
    engine.arbiter.Sync(tenant.id, now);
    engine.RunArbiter(now, &tenant, wakes);
    needs_poke = engine.NeedsPoke(std::min(engine.next_run, engine.NextPoll(now)));
  }
  engine.WakeAll(wakes);
  if (needs_poke) engine.Poke();
}

void Gate::Synchronized() {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const Time now = engine.clock.Now();
  base::MutexLock lock(&engine.mu);
  engine.arbiter.Touch(tenant.id, now);
}

// ---- Copies ----

Verdict Gate::AdmitCopy(CopyDirection direction, uint64_t bytes, Time deadline) {
  TenantState& tenant = *state_;
  Engine::Impl& engine = tenant.engine;
  const size_t d = static_cast<size_t>(direction);
  Time now = engine.clock.Now();
  const Time began = now;
  for (;;) {
    uint32_t seen = 0;
    Time until = deadline;
    {
      base::MutexLock lock(&engine.mu);
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
        if (limit.bytes_per_s <= 0 || limit.tokens > 0) {
          limit.tokens -= static_cast<double>(bytes);
          tenant.stats.copy_bytes[d] += bytes;
          tenant.stats.copy_throttled[d] += now - began;
          return Verdict::kAdmitted;
        }
        const double wait_ns = -limit.tokens / limit.bytes_per_s * 1e9 + 1;
        until = std::min(until, now + Nanos(static_cast<int64_t>(wait_ns)));
      }
      if (now >= deadline) return Verdict::kDeadline;
    }
    engine.clock.Wait(tenant.page.wake, seen, until, Nanos(0));
    now = engine.clock.Now();
  }
}

}  // namespace gpushare::gate
