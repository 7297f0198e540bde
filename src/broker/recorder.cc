// SPDX-License-Identifier: Apache-2.0
#include "broker/recorder.h"

#include <algorithm>
#include <utility>

namespace gpushare::broker {

using Kind = RecordedEvent::Kind;

void Recorder::Look(const Registry& registry, Time now) {
  if (!on_) return;
  if (now > until_) return Forget();
  ++look_;
  for (const Registry::Session& session : registry.sessions()) {
    for (const Registry::Place& place : session.places) LookAt(session, place, now);
  }
  for (auto at = seen_.begin(); at != seen_.end();) {
    if (at->second.look == look_) {
      ++at;
      continue;
    }
    Seen& gone = at->second;
    CloseAll(gone, now);
    if (gone.memory > 0) Instant(gone, Kind::kMemory, 0, 0, now);
    at = seen_.erase(at);
  }
  LookAtTenants(registry, now);
}

Recording Recorder::Take(const Registry& registry, Time now, std::optional<uint64_t> from) {
  const bool begins = !on_;
  on_ = true;
  until_ = now + kGoesOn;
  if (begins) Look(registry, now);  // records the present state
  Recording recording{.at = now, .next = next_, .lost = 0, .events = {}, .open = {}};
  const uint64_t first = next_ - events_.size();
  // Events with numbers from before a pause of recording count as lost, too.
  const uint64_t wanted = std::min(from.value_or(begins ? first : next_), next_);
  recording.lost = wanted < first ? first - wanted : 0;
  const size_t begin = std::max(wanted, first) - first;
  const size_t end = std::min(events_.size(), begin + kMostAtOnce);
  recording.events.assign(events_.begin() + static_cast<std::ptrdiff_t>(begin),
                          events_.begin() + static_cast<std::ptrdiff_t>(end));
  recording.next = first + end;
  for (const auto& [key, seen] : seen_) {
    for (const auto* slot : {&seen.lease, &seen.wait, &seen.device}) {
      if (!slot->has_value()) continue;
      recording.open.push_back(**slot);
      recording.open.back().end = now;
    }
  }
  // A reader that joins a recording in progress is told what all processes hold.
  if (!begins && !from.has_value()) {
    for (const auto& [key, seen] : seen_) {
      if (seen.memory == UINT64_MAX) continue;
      recording.events.push_back(
          seen.EventOf(Kind::kMemory, static_cast<int64_t>(seen.memory), seen.memory_granted, now));
    }
  }
  return recording;
}

void Recorder::Forget() {
  on_ = false;
  events_.clear();
  seen_.clear();
  suspended_.clear();
}

void Recorder::LookAt(const Registry::Session& session, const Registry::Place& place, Time now) {
  const auto [at, is_new] = seen_.try_emplace({session.id, &place});
  Seen& seen = at->second;
  seen.look = look_;
  if (is_new) {
    seen.who.gpu = place.share->gpu->info.uuid;
    seen.who.tenant = session.tenant->name;
    seen.who.pid = session.who.pid;
    seen.who.session = session.id;
    if (place.seat != nullptr) seen.denied = place.seat->usage->allocations_denied.load(kRelaxed);
    if (place.time != nullptr) {
      // An outstanding grant began before the first look.
      seen.granted_ns = place.time->granted_ns;
      seen.bypassed_ns = place.time->bypassed_ns;
      if (place.time->charged_ns > 0 && place.time->granted_ns > 0) {
        Open(seen.lease, seen, Kind::kLease, place.time->charged_ns, now);
      }
    }
  }
  if (place.time == nullptr) {
    CloseAll(seen, now);
  } else {
    LookAtTime(*place.time, seen, now);
  }
  LookAtMemory(place, seen, now);
}

void Recorder::LookAtTime(const TimeBook::Member& member, Seen& seen, Time now) {
  const bool bypasses = member.bypassed_ns != seen.bypassed_ns;
  const int64_t in_flight = member.seat->usage->time_in_flight_ns.load(kRelaxed);
  const bool is_high = (member.seat->limits->flags.load(kRelaxed) & ipc::LimitsPage::kBypass) != 0;
  if (is_high) {
    Close(seen.lease, now);
    Close(seen.wait, now);
    if ((bypasses || in_flight > 0) && !seen.device.has_value()) {
      Open(seen.device, seen, Kind::kDevice, 0, now);
      seen.device_from_ns = seen.bypassed_ns;
    }
    if (seen.device.has_value()) {
      seen.device->value = std::max<int64_t>(member.bypassed_ns - seen.device_from_ns, 0);
      if (in_flight <= 0) Close(seen.device, now);
    }
  } else {
    Close(seen.device, now);
    // Device time used beyond the grants is added to granted_ns too, but is no lease.
    const int64_t latest = member.seat->limits->grant_ns.load(kRelaxed);
    const bool given = member.granted_ns - seen.granted_ns >= latest && latest > 0;
    if (given || member.charged_ns == 0) Close(seen.lease, now);
    if (given && member.charged_ns > 0) Open(seen.lease, seen, Kind::kLease, latest, now);
    if (!member.waiting) Close(seen.wait, now);
    if (member.waiting && !seen.wait.has_value()) {
      const int64_t wanted = member.seat->usage->time_wanted_ns.load(kRelaxed);
      Open(seen.wait, seen, Kind::kWait, std::max<int64_t>(wanted, 0), now);
    }
  }
  seen.granted_ns = member.granted_ns;
  seen.bypassed_ns = member.bypassed_ns;
}

void Recorder::LookAtMemory(const Registry::Place& place, Seen& seen, Time now) {
  const uint64_t memory = MemoryBook::Used(*place.memory);
  const uint64_t granted = place.memory->granted;
  const bool is_first = seen.memory == UINT64_MAX;
  if ((memory != seen.memory || granted != seen.memory_granted) && (is_first || MayTell(now))) {
    seen.memory = memory;
    seen.memory_granted = granted;
    Instant(seen, Kind::kMemory, static_cast<int64_t>(memory), granted, now);
  }
  if (place.seat == nullptr) return;
  const uint64_t denied = place.seat->usage->allocations_denied.load(kRelaxed);
  if (denied > seen.denied) {
    if (!MayTell(now)) return;  // the event comes later, together with further changes
    const uint64_t more = std::min<uint64_t>(denied - seen.denied, UINT32_MAX);
    Instant(seen, Kind::kDenied, static_cast<int64_t>(more), 0, now);
  }
  seen.denied = denied;
}

void Recorder::LookAtTenants(const Registry& registry, Time now) {
  std::set<std::pair<std::string, std::string>> suspended;
  for (const Registry::Session& session : registry.sessions()) {
    if (!session.tenant->suspended) continue;
    for (const Registry::Place& place : session.places) {
      suspended.emplace(place.share->gpu->info.uuid, session.tenant->name);
    }
  }
  if (suspended == suspended_) return;
  const auto tell = [&](const auto& those, const auto& but, int64_t value) {
    for (const auto& [gpu, tenant] : those) {
      if (but.contains({gpu, tenant})) continue;
      RecordedEvent event{.kind = Kind::kSuspend, .gpu = gpu, .tenant = tenant};
      event.begin = event.end = now;
      event.value = value;
      Add(std::move(event));
    }
  };
  tell(suspended, suspended_, 1);
  tell(suspended_, suspended, 0);
  suspended_ = std::move(suspended);
}

RecordedEvent Recorder::Seen::EventOf(Kind kind, int64_t value, uint64_t other, Time at) const {
  RecordedEvent event = who;
  event.kind = kind;
  event.begin = event.end = at;
  // The process's page is not trusted.
  event.value = std::max<int64_t>(value, 0);
  event.other = std::min<uint64_t>(other, INT64_MAX);
  return event;
}

void Recorder::Open(std::optional<RecordedEvent>& slot, const Seen& seen, Kind kind, int64_t value,
                    Time now) {
  slot = seen.EventOf(kind, value, 0, now);
}

void Recorder::Close(std::optional<RecordedEvent>& slot, Time now) {
  if (!slot.has_value()) return;
  slot->end = now;
  Add(*std::exchange(slot, std::nullopt));
}

void Recorder::CloseAll(Seen& seen, Time now) {
  Close(seen.lease, now);
  Close(seen.wait, now);
  Close(seen.device, now);
}

void Recorder::Instant(const Seen& seen, Kind kind, int64_t value, uint64_t other, Time now) {
  Add(seen.EventOf(kind, value, other, now));
}

bool Recorder::MayTell(Time now) {
  if (now >= milli_ + Millis(1)) {
    milli_ = now;
    told_ = 0;
  }
  return told_++ < kMostEachMilli;
}

void Recorder::Add(RecordedEvent event) {
  if (events_.size() == capacity_) events_.pop_front();
  events_.push_back(std::move(event));
  ++next_;
}

}  // namespace gpushare::broker
