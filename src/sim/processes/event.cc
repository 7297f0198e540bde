// SPDX-License-Identifier: Apache-2.0
#include "sim/processes/event.h"

#include <algorithm>

#include "sim/processes/device.h"
#include "sim/state.h"

namespace gpushare::sim {
namespace {

uint64_t Bit(uint32_t place) { return uint64_t{1} << place; }

}  // namespace

SharedEvent& SharedEvents::At(uint32_t index) { return shared_.segment_->events[index]; }

void SharedEvents::Wake(SharedEvent& event, uint64_t now) {
  const uint64_t waiting = event.waiting.exchange(0);
  for (uint32_t i = 0; i < kPlaces; ++i) {
    ProcessPlace& place = shared_.segment_->places[i];
    if ((waiting & Bit(i)) != 0 && place.next_event > now) place.next_event = now;
  }
}

void SharedEvents::Free(SharedEvent& event, uint64_t now) {
  event.number = 0;
  for (uint32_t i = 0; i < kPlaces; ++i) event.completed[i] = event.recorded[i].load();
  Wake(event, now);
}

uint32_t SharedEvents::Create() {
  const SharedDevice::Locked locked(shared_);
  if (!shared_.joined()) return kNobody;
  for (uint32_t i = 0; i < kSharedEvents; ++i) {
    SharedEvent& event = At(i);
    if (event.number != 0) continue;
    for (uint32_t at = 0; at < kPlaces; ++at) event.completed[at] = event.recorded[at].load();
    event.latest = 0;
    event.waiting = 0;
    event.users = Bit(shared_.place());
    event.number = ++shared_.segment_->event_numbers;
    opened_[i] = 1;
    return i;
  }
  return kNobody;
}

bool SharedEvents::Open(uint32_t index, uint64_t number) {
  if (index >= kSharedEvents || number == 0) return false;
  const SharedDevice::Locked locked(shared_);
  if (!shared_.joined()) return false;
  shared_.Sweep();  // closes the events of dead processes
  SharedEvent& event = At(index);
  if (event.number != number) return false;
  event.users |= Bit(shared_.place());
  ++opened_[index];
  return true;
}

void SharedEvents::Close(uint32_t index) {
  const SharedDevice::Locked locked(shared_);
  if (!shared_.joined() || --opened_[index] > 0) return;
  SharedEvent& event = At(index);
  event.users &= ~Bit(shared_.place());
  if (event.users == 0) Free(event, shared_.Now());
}

uint64_t SharedEvents::Number(uint32_t index) { return At(index).number; }

void SharedEvents::Record(uint32_t index) {
  const SharedDevice::Locked locked(shared_);
  if (!shared_.joined()) return;
  SharedEvent& event = At(index);
  const uint32_t place = shared_.place();
  event.latest = RecordOf(place, ++event.recorded[place]);
}

void SharedEvents::Complete(uint32_t index, uint64_t now) {
  const SharedDevice::Locked locked(shared_);
  if (!shared_.joined()) return;
  SharedEvent& event = At(index);
  const uint32_t place = shared_.place();
  if (event.completed[place] < event.recorded[place]) ++event.completed[place];
  Wake(event, now);
}

uint64_t SharedEvents::Recorded(uint32_t index) { return At(index).latest; }

bool SharedEvents::IsComplete(uint32_t index, uint64_t record) {
  const SharedDevice::Locked locked(shared_);
  if (!shared_.joined()) return true;
  SharedEvent& event = At(index);
  const uint64_t recorder = (record >> 56) - 1, count = record & ((uint64_t{1} << 56) - 1);
  if (recorder >= kPlaces) return true;  // there was no record
  const auto place = static_cast<uint32_t>(recorder);
  if (event.completed[place] < count && shared_.IsDead(place)) shared_.DeclareOver(place);
  // Complete if all that the place recorded is complete: the count may be nonsense, or the process gone.
  const uint64_t completed = event.completed[place];
  if (completed >= count || completed >= event.recorded[place]) return true;
  if (shared_.IsGone(place)) return true;
  event.waiting |= Bit(shared_.place());
  return false;
}

void SharedEvents::EndWait(uint32_t index, uint64_t record) {
  waits_.erase(std::find(waits_.begin(), waits_.end(), Wait{index, record}));
}

bool SharedEvents::IsOver() {
  return std::any_of(waits_.begin(), waits_.end(),
                     [this](const Wait& wait) { return IsComplete(wait.index, wait.record); });
}

void SharedEvents::Release(uint32_t place, uint64_t now) {
  for (SharedEvent& event : shared_.segment_->events) {
    event.waiting &= ~Bit(place);
    if (event.number == 0) continue;
    event.users &= ~Bit(place);
    if (event.users == 0) {
      Free(event, now);
    } else {
      event.completed[place] = event.recorded[place].load();
      Wake(event, now);
    }
  }
}

void CloseIfDone(Event* event) {
  if (event->handle != 0 || event->shared_records > 0) return;
  if (state().shared != nullptr) state().shared->events().Close(event->shared);
  delete event;
}

}  // namespace gpushare::sim
