// SPDX-License-Identifier: Apache-2.0
// The reconciler: sees markers complete, turns them into device time, and corrects the charges of tenants.
#include <algorithm>
#include <new>
#include <utility>

#include "gate/state.h"

namespace gpushare::gate {
namespace {

// Time between two queries of a marker that is due.
constexpr Nanos kPoll = Micros(5);
// The part of the predicted time that must have passed before the first query.
constexpr double kFirstLook = 0.9;
// Work that is this late is charged before its marker is seen.
constexpr Nanos kOverdue = Millis(10);
// A late marker is queried again after its lateness divided by kPollParts, between kPoll and kLongestPoll.
constexpr int kPollParts = 32;
constexpr Nanos kLongestPoll = Millis(1);
// A tenant that is charged this part of its kernels' durations or more does not share the device.
constexpr float kFillsDevice = 0.97f;
// Part of its kernels' time that others must have used for the tenant's kernels to go first (LevelOf()).
constexpr double kLeavesMuch = 0.12;
// The same where the others' batches hold kManyCommands or more.
constexpr double kLeavesSome = 1 - kFillsDevice;
constexpr double kManyCommands = 5;
// Parts of the device time: a tenant that is entitled to more than kMoreThanHalf goes first, until it is entitled to less than
// kHalf.
constexpr double kMoreThanHalf = 0.55, kHalf = 0.5;
// A marker on an idle stream is seen to complete within this time. One that is not has found its stream busy.
constexpr Nanos kMarkerSeen = Micros(10);
// A marker that began at most this long after its submission found its stream idle.
constexpr Nanos kLateMarker = Nanos(500);
// Time to the next round while there is a graph to study.
constexpr Nanos kStudyPause = Micros(100);
// A start marker may lower the offset of the clocks by kOffsetStep and the time since the last one divided by kFastestDrift.
constexpr Nanos kOffsetStep = Nanos(100);
constexpr int kFastestDrift = 10'000;

}  // namespace

// One pass over the first marker of each stream. True if one had completed: others that were queried earlier in the
// pass may have completed before it, so the caller queries again before it sorts by stamp.
bool Engine::Impl::QueryMarkers(Round& round) {
  round.first.clear();
  {
    const Time now = clock.Now();
    const Section section(*this);
    const size_t most = marked_streams.size();
    try {
      round.first.reserve(most);
      round.completed.reserve(round.completed.size() + most);
      round.stamped.reserve(round.completed.size() + most);
    } catch (const std::bad_alloc&) {
      return false;  // the markers are queried next time
    }
    for (const StreamGate* stream : marked_streams) {
      round.first.push_back(stream->markers.front());
      if (stream->live && now - stream->markers.front().recorded >= kMarkerSeen) {
        replay.Holds(stream->replay);
      }
    }
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

// Whether the marker that took its stamp from `ended` on found its stream idle, or this cannot be told.
bool Engine::Impl::FoundIdle(const Marker& marker, Nanos ended) const {
  if (marker.ended_now) return false;
  // No marker begins before it is submitted. An offset that was measured while another process had the device is too small by
  // that wait, and every marker would seem to have found its stream idle. So this marker bounds the offset from below, with
  // kLateMarker for the variation of launch times.
  const Nanos offset =
      std::max(submit_offset, marker.recording.time_since_epoch() - ended - kLateMarker);
  return ended <= marker.recorded.time_since_epoch() - offset + kLateMarker;
}

// For a batch of the high band: adds what it has earned to its delay budget, and takes off by how much the commands let in
// beside it have delayed it. Returns whether these may have stretched it.
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

void Engine::Impl::LearnFrom(TenantState& tenant, const meter::Replay::Batch& batch) {
  if (!batch.learnable && !batch.in_time) return;
  bool changed = false;
  for (size_t i = 0; i < batch.commands.size();) {
    const meter::Replay::Command& command = batch.commands[i];
    // The parts of a graph are adjacent and are learnt as one command.
    float cost = 0;
    for (uint32_t n = 0;
         n < command.parts && i < batch.commands.size() && batch.commands[i].entry == command.entry;
         ++n, ++i) {
      cost += static_cast<float>(batch.commands[i].alone_ns());
    }
    if (cost <= 0) continue;  // the driver refused it
    // The cost of an opaque command shows only while it has the device to itself.
    if (command.opaque) continue;
    if (!batch.learnable) {
      const bool by_itself = i == batch.commands.size() && i == command.parts;
      if (by_itself && !batch.guessed) tenant.costs->Confirm(command.entry, cost);
      continue;
    }
    // For a graph that ran beside others, the replay cannot tell which of its equal parts lost time to them.
    if (command.parts > 1 && !batch.alone && cost >= kLongGraphNs) continue;
    const double share = static_cast<double>(cost) / std::max(batch.predicted_ns, 1.0);
    changed |= tenant.costs->Learn(command.entry, cost, static_cast<float>(batch.ratio),
                                   static_cast<float>(share), batch.alone);
  }
  if (changed) tenant.purse.PricesChanged();
}

// If the device is faster than the host, batches tell nothing, so now and then commands are measured by themselves. These are the
// next ones on the stream. They may be the same each time, such as the first ones after the host has waited for the device. So
// their number changes: 1, 2, 1, 4, 1, 2, 1, 8 and so on. Every command gets its turn that way, and they stay few.
void Engine::Impl::ToldNothing(StreamGate& stream, int commands) {
  stream.told_nothing += std::min(commands, kMostOfBatch);
  if (stream.told_nothing < kMostToldNothing) return;
  stream.told_nothing = 0;
  const uint32_t turn = ++stream.turns;
  const uint32_t lowest_bit = turn & (~turn + 1);
  stream.to_mark =
      std::max(stream.to_mark, static_cast<int>(std::min<uint32_t>(lowest_bit, kMostToMark)));
}

void Engine::Impl::Settle(const Marker& marker, Nanos stamp, Time now) {
  StreamGate& stream = *marker.stream;
  TenantState& tenant = *stream.tenant;
  --stream.markers_pending;
  UnknownDone(tenant, marker.unknown);
  // The marker is behind everything that was launched on the stream before it was recorded.
  if (marker.commands > 0 && stream.unsure_since < marker.recording) SetUnsure(stream, kNever);
  if (marker.waits_for_host) stream.held_up_since = kNever;
  if (marker.waits_for_host && !tenant.removed) arbiter.Resume(tenant.id, now);
  if (!stream.live) return;
  // The marker began when the work before it ended, unless it found the stream idle.
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
  // If the driver does not say when a batch ended, the only bound on its run time is the present.
  const Nanos most(marker.failed && marker.commands > 0
                       ? static_cast<int64_t>(replay.UsedSoFar(stream.replay, stamp))
                       : 0);
  const meter::Replay::Batch batch = replay.Complete(stream.replay, ended, stamp, end);
  // A marker recorded after a silence that found its stream idle says nothing about its batch. It is unknown when the batch
  // was launched, or whether it was: a thread may be stopped between the gate and the driver.
  if (marker.failed || (late && marker.after_silence)) {
    if (!marker.failed) ToldNothing(stream, marker.commands);
    const Nanos taken = std::max(Nanos(marker.charged_ns), most);
    const Nanos paid = marker.failed ? Nanos(marker.accrued_ns) : Nanos(0);
    arbiter.Settle(tenant.id, marker.phase, Nanos(marker.charged_ns), taken - paid, marker.commands,
                   now);
    if (marker.passed) PassedDone(tenant, taken, now);
    return;
  }
  // The clocks of host and device drift apart, and a start marker shows by how much. The offset is also bounded from
  // above, since nothing is seen before it happened.
  if (marker.commands == 0 && !marker.behind_stall) {
    // A marker that waited for an event of another stream began later than its submission suggests. Clocks do not drift that
    // fast, so the step is bounded.
    const Nanos least = -kOffsetStep - (now - offset_seen) / kFastestDrift;
    const Nanos step = (marker.recorded.time_since_epoch() - ended - submit_offset) / 8;
    submit_offset += std::max(step, least);
    offset_seen = now;
  }
  submit_offset = std::min(submit_offset, now.time_since_epoch() - stamp);
  if (marker.commands == 0) return;

  // Commands that were let in beside the batch may have stretched it. It is not learnt then, since longer predictions would make
  // more room for such commands.
  const bool stretched = WasBeside(tenant, batch, ended - began_after);
  if (!marker.lease && !stretched) LearnFrom(tenant, batch);
  if (batch.learnable) stream.told_nothing = 0;
  if (batch.in_time && !batch.shared) ToldNothing(stream, marker.commands);

  // A long graph that was not alone is charged what it costs alone: see WantsDevice().
  const bool graphs =
      !marker.lease && std::any_of(batch.commands.begin(), batch.commands.end(),
                                   [](const meter::Replay::Command& c) { return c.opaque; });
  // A graph that took far longer is the exception: its work depends on data, or it was changed in a way that the gate did not
  // see. Then the next one is measured alone.
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
  // Charges follow what the tenant's commands lately took of the device, not what they take alone.
  const double factor = batch.used_ns / std::max(batch.predicted_ns * batch.ratio, 1.0);
  const double old = tenant.page.charge_factor();
  const double weight = std::min(1.0, batch.predicted_ns / 2e6);
  const double now_charged = std::clamp(old + weight * (factor - old), 0.01, 1.0);
  if (tenant.page.set_charge_factor(now_charged)) tenant.purse.PricesChanged();
  // The replay can attribute batches of kernels that fill the device whatever their length, and each marker between
  // them is a microsecond in which nothing runs. Between kernels that go first it is a microsecond in which others' kernels
  // get in. Both kinds get larger grants.
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

// By how many CUDA priorities the tenant's kernels go first. Of two kernels that do not fit side by side, the second waits for
// all blocks of the first. So the kernels of a tenant that is entitled to more than half of the time go first, and kernels of
// others fill what they leave. More kernels run side by side that way, at the same shares, since shares are kept by how much
// each tenant may launch.
// This begins only if the tenant's kernels leave much of the device (kLeavesMuch). If they leave less, there is less to gain,
// and shares in windows of 100 ms are less exact when not all tenants take turns. It begins at less (kLeavesSome) if the
// others' batches hold many commands. For these the replay has to guess in which order the two tenants took turns, and if it
// is off by a turn, that turn is charged to the wrong tenant. If one tenant goes first, the order is known.
int Engine::Impl::LevelOf(const TenantState& tenant) {
  if (tenant.options.limits.band != sched::Band::kNormal) return 0;
  const double entitled = arbiter.Entitled(tenant.id);
  const int level = tenant.page.level.load(std::memory_order_relaxed);
  const double worth = commands_a_batch >= kManyCommands ? kLeavesSome : kLeavesMuch;
  if (level == 0 && tenant.leaves < worth) return 0;
  // A tenant that is alone keeps its level: it has nobody to go before, and others that were active a moment ago will be back.
  if (entitled >= 1) return level;
  return entitled > (level > 0 ? kHalf : kMoreThanHalf) ? 1 : 0;
}

// Reports only work that is running. Work that waits behind another tenant's is late too, but has not begun.
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

// A thread that waits for the work of its lease may never come to release it, so leases are watched by time.
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

// The high band closes the device to others, and they wait until its last command is seen to be over. If the tenant launches
// now and then and never waits for the device, only a marker of the reconciler shows that, so its silence is shorter.
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

// The tenant's threads may never call the gate again while the device is busy with their launches, so the reconciler puts
// markers behind these. Returns how many commands are left without a marker for now, because another thread is recording on
// their stream or there is no memory.
int Engine::Impl::CloseSilent(TenantState& tenant, Time now, std::vector<Marker>& silent) {
  int left = 0;
  for (const auto& stream : tenant.streams) {
    if (!stream->live || stream->unmarked == 0) continue;
    if (stream->marking) {
      left += stream->unmarked;
      continue;
    }
    if (stream->thread != nullptr) {  // in this thread its handle means another stream
      stream->to_mark = std::min(stream->to_mark + stream->unmarked, kMostToMark);
      SettleUnmarked(tenant, *stream, now);
      continue;
    }
    try {
      silent.reserve(silent.size() + 1);
      silent.push_back(NewMarker(*stream));
    } catch (const std::bad_alloc&) {
      left += stream->unmarked;  // they are marked next time
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
    // The program's threads keep running. If a capture has begun meanwhile, the event may be in it, and querying it would
    // invalidate the capture.
    if (marker.event == nullptr || !MayCapture(*marker.stream)) continue;
    driver.DestroyEvent(std::exchange(marker.event, nullptr));
  }
  const Time now = clock.Now();
  const Section section(*this);
  for (const Marker& marker : silent) AddMarker(marker, now);
}

// When the first of the pending markers may have completed, by prediction.
Time Engine::Impl::NextPoll(Time now) const {
  Time next = kNever;
  for (const StreamGate* stream : marked_streams) {
    const Marker& marker = stream->markers.front();
    const Time from = std::max(marker.recorded, last_completion);
    // Part of the work already ran, in turns with the others' work that completed last, so only the rest counts.
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
    // Read before `stopping` is checked: a poke that comes after the check must end the wait below.
    const uint32_t seen = poke.load(std::memory_order_acquire);
    const uint32_t looks = looks_asked.load();
    if (stopping.load(std::memory_order_acquire)) break;
    if (context_ends.load(std::memory_order_acquire)) {
      LoseEvents();
      context_ends.store(false, std::memory_order_release);
    }
    if (events_suspect.exchange(false)) RenewEvents();
    std::unique_ptr<TenantState> gone;
    {
      const Section section(*this);
      gone.swap(removed_tenants);
    }
    while (gone != nullptr) gone = std::move(gone->next_removed);
    completed.clear();
    while (QueryMarkers(round)) {
    }
    stamped.clear();
    for (Marker& marker : completed) {
      // A status without a message needs no memory of the host.
      absl::StatusOr<Nanos> stamp = absl::Status(absl::StatusCode::kResourceExhausted, "");
      try {
        stamp = StampOf(marker);
      } catch (const std::bad_alloc&) {
        // The driver refused it: the marker has failed.
      }
      if (!stamp.ok()) events_suspect = true;
      if (!stamp.ok() && !marker.failed) {
        marker.failed = true;
        // The time line belongs to the engine's context, so its loss says nothing about tenants with their own contexts.
        TenantState& tenant = *marker.stream->tenant;
        try {
          if (tenant.own_context == nullptr) Report(tenant, stamp.status());
        } catch (const std::bad_alloc&) {
          // The work is settled as predicted all the same.
        }
      }
      // Failed markers are sorted behind all others; their time is set to one that the replay can be advanced to.
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
        // Settle() has resumed the tenant, but another of its streams may still be waiting for the host.
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
        // The incidents are dropped: the host is out of memory.
      }
    }
    if (looks_done.exchange(looks) != looks) clock.Wake(looks_done, 1 << 20);
    if (!silent.empty()) {
      RecordSilent(silent);
      silent.clear();
      continue;
    }
    if (GoOnStudying()) next = std::min(next, now + kStudyPause);
    // A short wait is spun rather than slept, since the wake-up would come too late.
    const Nanos spin = next - now < Micros(100) ? Micros(100) : Nanos(0);
    clock.Wait(poke, seen, next, spin);
  }
  driver.PopContext();
}

}  // namespace gpushare::gate
