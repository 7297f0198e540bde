// SPDX-License-Identifier: Apache-2.0
// The reconciler: sees markers complete, turns them into device time, corrects the tenants.
#include <algorithm>
#include <new>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {
namespace {

// Between two looks at a marker that is due.
constexpr Nanos kPoll = Micros(5);
// How much of the predicted time must have passed before the first look.
constexpr double kFirstLook = 0.9;
// Work so late is charged before its marker is seen.
constexpr Nanos kOverdue = Millis(10);
// A marker that is late is asked for again after this part of its lateness, within bounds.
constexpr int kPollParts = 32;
constexpr Nanos kLongestPoll = Millis(1);
// A tenant that is charged this part of its kernels' durations or more does not share the device.
constexpr float kFillsDevice = 0.97f;
// Of the time that its kernels take.
constexpr double kLeavesMuch = 0.12;
// Or this much, where a batch of theirs has so many commands or more.
constexpr double kLeavesSome = 1 - kFillsDevice;
constexpr double kManyCommands = 5;
// Of the device's time: who is to have more goes first, and does so until it is to have less.
constexpr double kMoreThanHalf = 0.55, kHalf = 0.5;
// A marker that began so soon after its submission found its stream idle.
constexpr Nanos kLateMarker = Nanos(500);
// To the next look while there is a graph to be studied.
constexpr Nanos kStudyPause = Micros(100);
// A start marker lowers the offset of the clocks by this much, and this part of the time since the last.
constexpr Nanos kOffsetStep = Nanos(100);
constexpr int kFastestDrift = 10'000;

}  // namespace

// One pass over the first marker of each stream. True when one had completed: others may have before it
// that were asked too early, so the caller asks again before it sorts by stamp.
bool Engine::Impl::QueryMarkers(Round& round) {
  round.first.clear();
  {
    const Section section(*this);
    const size_t most = marked_streams.size();
    try {
      round.first.reserve(most);
      round.completed.reserve(round.completed.size() + most);
      round.stamped.reserve(round.completed.size() + most);
    } catch (const std::bad_alloc&) {
      return false;  // they are asked the next time
    }
    for (const StreamGate* stream : marked_streams) round.first.push_back(stream->markers.front());
  }
  bool any = false;
  for (Marker& marker : round.first) {
    const driver::Result result = driver.QueryEvent(marker.event);
    if (result == driver::Result::kNotReady) continue;
    if (result != driver::Result::kSuccess) {
      Refused(*marker.stream->tenant, result, "cuEventQuery");
    }
    const Section section(*this);
    StreamGate& stream = *marker.stream;
    if (stream.markers.empty() || stream.markers.front().id != marker.id) continue;  // removed
    stream.markers.pop_front();
    if (stream.markers.empty()) std::erase(marked_streams, &stream);
    marker.failed = result != driver::Result::kSuccess;
    round.completed.push_back(marker);
    any = true;
  }
  return any;
}

void Engine::Impl::HoldUp(StreamGate& stream, Time now) {
  if (stream.live && !stream.markers.empty() && stream.markers.front().waits_for_host) {
    arbiter.HoldUp(stream.tenant->id, now);
    if (stream.held_up_since == kNever) stream.held_up_since = now;
  }
}

// Whether the marker that began to take its time at `ended` found its stream idle, or nobody knows.
bool Engine::Impl::FoundIdle(const Marker& marker, Nanos ended) const {
  // No marker begins before it is submitted. An offset that was measured while another process had the device is too small
  // by that wait, and then every marker seems to have found its stream idle. What a launch takes varies by less.
  const Nanos offset =
      std::max(submit_offset, marker.recording.time_since_epoch() - ended - kLateMarker);
  return ended <= marker.recorded.time_since_epoch() - offset + kLateMarker;
}

// Of work of the high band: what it has earned others, and what those that were let in beside it have cost it. Whether these
// may have stretched it.
bool Engine::Impl::WasBeside(TenantState& tenant, const meter::Replay::Batch& batch, Nanos took) {
  if (tenant.delay_budget.part() <= 0) return false;
  Nanos late{0};
  if (batch.beside_ns > 0) {
    late = took - Nanos(static_cast<int64_t>(batch.predicted_ns));
    late = std::min(late, Nanos(static_cast<int64_t>(batch.beside_ns)));
  }
  tenant.delay_budget.Ran(Nanos(static_cast<int64_t>(batch.used_ns)), late);
  return batch.beside_ns > 0 && batch.ratio > 1;
}

void Engine::Impl::Settle(const Marker& marker, Nanos stamp, Time now) {
  StreamGate& stream = *marker.stream;
  TenantState& tenant = *stream.tenant;
  --stream.markers_pending;
  UnknownDone(tenant, marker.unknown);
  // It stands behind all that was launched there before it was recorded.
  if (marker.commands > 0 && stream.unsure_since < marker.recording) SetUnsure(stream, kNever);
  if (marker.waits_for_host) stream.held_up_since = kNever;
  if (marker.waits_for_host && !tenant.removed) arbiter.Resume(tenant.id, now);
  if (!stream.live) return;
  // The marker began when what is before it ended, unless it found the stream idle.
  const Nanos ended = stamp - marker_cost;
  const Nanos began_after = std::exchange(stream.recorded_until, stamp);
  const bool late = marker.failed || FoundIdle(marker, ended);
  if (!marker.failed) {
    submit_offset =
        std::max(submit_offset, marker.recording.time_since_epoch() - ended - kLateMarker);
  }
  using End = meter::Replay::End;
  const End end = marker.failed                 ? End::kUnknown
                  : late && marker.commands > 0 ? End::kBefore
                                                : End::kStamped;
  // Of one of which the driver does not say when it ended, nobody knows more than that it has run no longer than to now.
  const Nanos most(marker.failed && marker.commands > 0
                       ? static_cast<int64_t>(replay.UsedSoFar(stream.replay, stamp))
                       : 0);
  const meter::Replay::Batch batch = replay.Complete(stream.replay, ended, stamp, end);
  // After a silence a marker that found its stream idle says nothing of a batch of which nobody knows when it was
  // launched, nor whether it was yet: a thread may stand between the gate and the driver.
  if (marker.failed || (late && marker.after_silence)) {
    const Nanos taken = std::max(Nanos(marker.charged_ns), most);
    const Nanos paid = marker.failed ? Nanos(marker.accrued_ns) : Nanos(0);
    arbiter.Settle(tenant.id, marker.phase, Nanos(marker.charged_ns), taken - paid, marker.commands,
                   now);
    if (marker.passed) PassedDone(tenant, taken, now);
    return;
  }
  // The clocks of host and device drift apart; a start marker shows by how much. And nothing is seen
  // before it happened.
  if (marker.commands == 0 && !marker.behind_stall) {
    // One that stood behind an event of another stream began later than its submission says, and clocks do
    // not drift that fast.
    const Nanos least = -kOffsetStep - (now - offset_seen) / kFastestDrift;
    const Nanos step = (marker.recorded.time_since_epoch() - ended - submit_offset) / 8;
    submit_offset += std::max(step, least);
    offset_seen = now;
  }
  submit_offset = std::min(submit_offset, now.time_since_epoch() - stamp);
  if (marker.commands == 0) return;

  // What ran beside it may have made it seem longer than it is: nobody is to make room for himself so.
  const bool stretched = WasBeside(tenant, batch, ended - began_after);
  if (batch.learnable && !marker.lease && !stretched) {
    bool changed = false;
    for (size_t i = 0; i < batch.commands.size();) {
      const meter::Replay::Command& command = batch.commands[i];
      // The parts of one stand together, and are learnt as one.
      float cost = 0;
      for (uint32_t n = 0; n < command.parts && i < batch.commands.size() &&
                           batch.commands[i].entry == command.entry;
           ++n, ++i) {
        cost += batch.commands[i].cost_ns;
      }
      if (cost <= 0) continue;  // the driver refused it
      // What it takes shows only while it has the device to itself.
      if (command.opaque) continue;
      // Of which of its equal parts others took the time of a graph that ran beside them the replay cannot tell.
      if (command.parts > 1 && !batch.alone && cost >= kLongGraphNs) continue;
      const double share = static_cast<double>(cost) / std::max(batch.predicted_ns, 1.0);
      changed |= tenant.costs->Learn(command.entry, cost, static_cast<float>(batch.ratio),
                                     static_cast<float>(share), batch.alone);
    }
    if (changed) tenant.purse.PricesChanged();
  }

  // A long graph that was not alone is taken to have cost what it costs alone: see WantsDevice().
  const bool graphs =
      !marker.lease && std::any_of(batch.commands.begin(), batch.commands.end(),
                                   [](const meter::Replay::Command& c) { return c.opaque; });
  // But for one that took far longer: what it does depends on data, or it was changed past us. Then the next one is measured.
  const bool believed = graphs && batch.used_ns <= kDisbelieved * batch.predicted_ns;
  if (graphs && !believed) {
    stream.long_graphs_ns.store(kCalibrateAfterNs - 1, std::memory_order_relaxed);
  }
  const Nanos measured(static_cast<int64_t>(believed ? batch.predicted_ns : batch.used_ns));
  measured_until = std::max(measured_until, std::min(HostTime(ended), now));
  arbiter.Settle(tenant.id, marker.phase, Nanos(marker.charged_ns),
                 measured - Nanos(marker.accrued_ns), marker.commands, now, HostTime(ended));
  if (marker.passed) PassedDone(tenant, measured, now);
  tenant.stats.predicted += Nanos(marker.charged_ns);
  tenant.stats.measured += measured - Nanos(marker.accrued_ns);
  if (recorder->on()) [[unlikely]] {
    RecordSettled(marker, began_after, ended, measured - Nanos(marker.accrued_ns));
  }

  if (marker.lease || graphs || batch.guessed) return;
  // Charge by what the tenant's commands lately took of the device, not by what they take alone.
  const double factor = batch.used_ns / std::max(batch.predicted_ns * batch.ratio, 1.0);
  const double old = tenant.page.charge_factor();
  const double weight = std::min(1.0, batch.predicted_ns / 2e6);
  const double now_charged = std::clamp(old + weight * (factor - old), 0.01, 1.0);
  if (tenant.page.set_charge_factor(now_charged)) tenant.purse.PricesChanged();
  // Batches of kernels that fill the device are told apart whatever their length, and every marker between
  // them is a microsecond in which nobody runs. Of kernels that go before others' it is one in which these get in.
  const bool fills = now_charged > kFillsDevice;
  const double part = std::min(1.0, batch.predicted_ns / 1e8);
  tenant.leaves += part * (1 - std::min(factor, 1.0) - tenant.leaves);
  if (arbiter.Entitled(tenant.id) <= kHalf) {
    double commands = 0;
    for (const meter::Replay::Command& c : batch.commands) commands += 1.0 / std::max(c.parts, 1u);
    commands_a_batch += part * (commands - commands_a_batch);
  }
  const int level = LevelOf(tenant);
  tenant.page.level.store(level, std::memory_order_relaxed);
  const Nanos grant = options.arbiter.grant;
  arbiter.SetLeaves(tenant.id, !fills);
  arbiter.SetGrant(tenant.id, fills || level > 0 ? 2 * grant : grant);
}

// Of two kernels that do not fit side by side the one that comes second waits for all blocks of the first. Of whoever is
// to have more than half of the time they go first, and those of others fill what they leave: so more of them run side by
// side, at the same shares, since these are kept by who may launch how much.
// It begins with one whose kernels leave much of the device: of others there is less to be had, and windows of 100 ms are
// less sure where not all take turns. With less where others' batches hold many commands: there the replay has to guess in
// which order the two took turns, and a turn that it is off by is charged to the wrong one. Who goes first it knows.
int Engine::Impl::LevelOf(const TenantState& tenant) {
  if (tenant.options.limits.band != sched::Band::kNormal) return 0;
  const double entitled = arbiter.Entitled(tenant.id);
  const int level = tenant.page.level.load(std::memory_order_relaxed);
  const double worth = commands_a_batch >= kManyCommands ? kLeavesSome : kLeavesMuch;
  if (level == 0 && tenant.leaves < worth) return 0;
  // Alone it has nobody to go before, and will not be alone for long if it was not a moment ago.
  if (entitled >= 1) return level;
  return entitled > (level > 0 ? kHalf : kMoreThanHalf) ? 1 : 0;
}

// What waits behind another's work is late as well, but has not begun to run: it is not told of.
void Engine::Impl::WatchOver(const StreamGate& stream, Marker& marker) {
  const Nanos late = replay.Overrun(stream.replay);
  if (late < watchdog->limit()) return;
  marker.told = true;
  Note({.kind = Incident::Kind::kStuck,
        .tenant = {},
        .late = late,
        .lease = marker.lease,
        .stream = stream.handle},
       *stream.tenant);
}

// Whoever holds a lease may wait for its work, and so never come to release it.
Time Engine::Impl::WatchLeases(Time now) {
  Time next = kNever;
  if (watchdog == nullptr) return next;
  for (LeaseState& lease : leases) {
    const LeaseRequest& request = lease.request;
    if (lease.told || request.held_back) continue;
    const Time overdue = After(After(lease.acquired, request.maximum), watchdog->limit());
    if (now < overdue) {
      next = std::min(next, overdue);
      continue;
    }
    lease.told = true;
    Note({.kind = Incident::Kind::kStuck,
          .tenant = {},
          .late = now - lease.acquired - request.maximum,
          .lease = true,
          .stream = request.streams.empty() ? nullptr : request.streams[0]->handle},
         *lease.tenant);
  }
  return next;
}

void Engine::Impl::ChargeOverdue(Time now) {
  for (StreamGate* stream : marked_streams) {
    Marker& marker = stream->markers.front();
    if (marker.commands == 0) continue;
    const Time due = std::max(marker.recorded, last_completion) + Nanos(marker.charged_ns);
    const bool overdue = now - due >= kOverdue && !marker.lease;
    const bool watched =
        watchdog != nullptr && !marker.told && now - marker.recorded >= watchdog->limit();
    if (!overdue && !watched) continue;
    const double used = replay.UsedSoFar(stream->replay, DeviceTime(now - kOverdue / 2));
    if (watched) WatchOver(*stream, marker);
    if (!overdue) continue;
    const int64_t more = static_cast<int64_t>(used) - marker.charged_ns - marker.accrued_ns;
    if (more <= 0) continue;
    marker.accrued_ns += more;
    TenantState& tenant = *stream->tenant;
    arbiter.Settle(tenant.id, marker.phase, Nanos(0), Nanos(more), 0, now);
    tenant.stats.measured += Nanos(more);
    if (recorder->on()) [[unlikely]]
      RecordOverdue(tenant, Nanos(more), now);
  }
}

// Of one that others are shut out for, they wait until its last command is seen to be over: if it launches now and then
// and waits for nothing, that is by the marker behind it alone.
Nanos Engine::Impl::SilenceOf(const TenantState& tenant) const {
  const bool others = options.supply != nullptr || arbiter.tenants() > 1;
  return others && tenant.options.limits.band == sched::Band::kHigh
             ? std::min(kSilence, options.arbiter.high_grace)
             : kSilence;
}

Time Engine::Impl::RevokeIdle(Time now, std::vector<Marker>& silent) {
  Time next = kNever;
  for (size_t i = 0; i < open_tenants.size();) {
    TenantState& tenant = *open_tenants[i];
    const uint64_t word = tenant.purse.Look();
    if (word != tenant.last_word) {
      tenant.last_word = word;
      tenant.last_change = now;
      arbiter.Touch(tenant.id, now);
    }
    const Nanos quiet = now - tenant.last_change;
    const bool credit = TenantPage::CreditOf(word) > 0;
    const Nanos silence = SilenceOf(tenant);
    if (credit && quiet >= std::min(options.arbiter.active_grace, silence)) TakeCredit(tenant, now);
    int unmarked = 0;
    for (const auto& stream : tenant.streams) unmarked += stream->live ? stream->unmarked : 0;
    const bool unseen = TenantPage::LaunchOf(word) != tenant.synced_launch;
    if ((unmarked > 0 || unseen) && quiet >= silence) {
      SyncLaunches(tenant, now, tenant.last_change);
      unmarked = CloseSilent(tenant, now, silent);
    }
    const bool done = TenantPage::CreditOf(tenant.purse.Look()) == 0 && unmarked == 0 &&
                      TenantPage::LaunchOf(word) == tenant.synced_launch;
    if (done) {
      tenant.open = false;
      open_tenants[i] = open_tenants.back();
      open_tenants.pop_back();
      continue;
    }
    const bool open = unmarked > 0 || TenantPage::LaunchOf(word) != tenant.synced_launch;
    next = std::min(next, tenant.last_change + (silence < kSilence || (open && !credit)
                                                    ? silence
                                                    : options.arbiter.active_grace));
    ++i;
  }
  return std::max(next, now + Micros(10));
}

// No thread of the tenant may come by again, and the device may be busy with what they launched: markers go behind
// it from here. Returns how many commands have to wait for another thread that is recording.
int Engine::Impl::CloseSilent(TenantState& tenant, Time now, std::vector<Marker>& silent) {
  int left = 0;
  for (const auto& stream : tenant.streams) {
    if (!stream->live || stream->unmarked == 0) continue;
    if (stream->marking) {
      left += stream->unmarked;
      continue;
    }
    if (stream->thread != nullptr) {  // to this thread its handle means another
      stream->to_mark = std::min(stream->to_mark + stream->unmarked, kMostToMark);
      SettleUnmarked(tenant, *stream, now);
      continue;
    }
    try {
      silent.reserve(silent.size() + 1);
      silent.push_back(NewMarker(*stream));
    } catch (const std::bad_alloc&) {
      left += stream->unmarked;  // the next time
      continue;
    }
    silent.back().after_silence = true;
    arbiter.Launched(tenant.id, silent.back().commands, now);
  }
  return left;
}

void Engine::Impl::RecordSilent(std::vector<Marker>& silent) {
  for (Marker& marker : silent) {
    RecordMarker(marker);
    // The program's threads do not stand still. Where a capture began meanwhile the event may be in it, and to ask when
    // it completes would invalidate the capture.
    if (marker.event == nullptr || !MayCapture(*marker.stream)) continue;
    driver.DestroyEvent(std::exchange(marker.event, nullptr));
  }
  const Time now = clock.Now();
  const Section section(*this);
  for (const Marker& marker : silent) AddMarker(marker, now);
}

// When the first of the pending markers can have completed, by prediction.
Time Engine::Impl::NextPoll(Time now) const {
  Time next = kNever;
  for (const StreamGate* stream : marked_streams) {
    const Marker& marker = stream->markers.front();
    const Time from = std::max(marker.recorded, last_completion);
    // What of it is over already ran in turns with others' work, of which the last completion was.
    const double left =
        std::max(0.0, static_cast<double>(marker.charged_ns) - replay.used_ns(stream->replay));
    const Nanos wait(static_cast<int64_t>(kFirstLook * left));
    const Nanos late = now - (from + Nanos(static_cast<int64_t>(left)));
    const Nanos pause = std::clamp(late / kPollParts, kPoll, kLongestPoll);
    next = std::min(next, std::max(from + wait, now + pause));
  }
  return next;
}

absl::StatusOr<Nanos> Engine::Impl::StampOf(const Marker& marker) {
  if (time_line != nullptr) return time_line->Stamp(marker.event, marker.stream->events);
  marker.stream->events->Give(marker.event);
  return absl::FailedPreconditionError("the engine's context has ended");
}

void Engine::Impl::Reconcile() {
  driver.PushContext(context);
  driver.RelaxThreadCaptureMode();
  Round round;
  auto& [first, completed, stamped, silent] = round;
  for (;;) {
    // Before it is asked whether to stop: a poke that comes after that must end the wait below.
    const uint32_t seen = poke.load(std::memory_order_acquire);
    const uint32_t looks = looks_asked.load();
    if (stopping.load(std::memory_order_acquire)) break;
    if (context_ends.load(std::memory_order_acquire)) {
      LoseEvents();
      context_ends.store(false, std::memory_order_release);
    }
    if (events_suspect.exchange(false)) RenewEvents();
    {
      std::vector<std::unique_ptr<TenantState>> gone;
      const Section section(*this);
      gone.swap(removed_tenants);
    }
    completed.clear();
    while (QueryMarkers(round)) {
    }
    stamped.clear();
    for (Marker& marker : completed) {
      const absl::StatusOr<Nanos> stamp = StampOf(marker);
      if (!stamp.ok()) events_suspect = true;
      if (!stamp.ok() && !marker.failed) {
        marker.failed = true;
        // The time line is of the engine's context: when that is lost, others are not.
        TenantState& tenant = *marker.stream->tenant;
        try {
          if (tenant.own_context == nullptr) Report(tenant, stamp.status());
        } catch (const std::bad_alloc&) {
          // It is settled as predicted all the same.
        }
      }
      // Behind all others, at a time that the replay can be advanced to.
      stamped.emplace_back(marker.failed ? Nanos::max() : *stamp, marker);
    }
    std::stable_sort(stamped.begin(), stamped.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });

    const Time now = clock.Now();
    Time next = kNever;
    std::shared_ptr<Watchdog> dog;
    std::vector<Incident> seen_incidents;
    {
      const Section section(*this);
      if (!stamped.empty()) {
        last_completion = now;
        for (TenantState* tenant : open_tenants) SyncLaunches(*tenant, now);
      }
      for (const auto& [stamp, marker] : stamped) {
        if (!marker.stream->live) continue;
        replay.Stamped(marker.stream->replay, !marker.failed && marker.commands > 0 &&
                                                  FoundIdle(marker, stamp - marker_cost));
      }
      for (const auto& [stamp, marker] : stamped) {
        StreamGate& stream = *marker.stream;
        Settle(marker, marker.failed ? DeviceTime(now) : stamp, now);
        if (stream.leaving && stream.markers_pending == 0) EndStream(stream);
        if (!marker.waits_for_host) {
          HoldUp(stream, now);
          continue;
        }
        // That resumed the tenant, of which another stream may still wait for the host.
        for (const auto& other : stream.tenant->streams) HoldUp(*other, now);
      }
      ChargeOverdue(now);
      RecordStudy(now);
      next = RevokeIdle(now, silent);
      RunArbiter(now, nullptr);
      next = std::min({next, NextPoll(now), WatchLeases(now), std::exchange(look_by, kNever)});
      reconciler_wakes = next;
      dog = watchdog;
      seen_incidents.swap(incidents);
    }
    if (dog != nullptr) {
      try {
        dog->Tell(std::move(seen_incidents));
      } catch (const std::bad_alloc&) {
        // Nobody is told; the host has other troubles.
      }
    }
    if (looks_done.exchange(looks) != looks) clock.Wake(looks_done, 1 << 20);
    if (!silent.empty()) {
      RecordSilent(silent);
      silent.clear();
      continue;
    }
    if (GoOnStudying()) next = std::min(next, now + kStudyPause);
    // A wait this short is not worth a sleep: the wake-up would come too late.
    const Nanos spin = next - now < Micros(100) ? Micros(100) : Nanos(0);
    clock.Wait(poke, seen, next, spin);
  }
  driver.PopContext();
}

}  // namespace gpushare::gate
