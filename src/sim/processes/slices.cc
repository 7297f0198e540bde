// SPDX-License-Identifier: Apache-2.0
#include "sim/processes/slices.h"

#include <algorithm>

#include "sim/device/device.h"
#include "sim/processes/device.h"

namespace gpushare::sim {
namespace {

// On the wall clock nothing wakes a process that waits for the SMs when they become free.
constexpr uint64_t kLookEvery = 200'000;

uint64_t AsTime(uint64_t at) { return std::min(at, kLatest); }

// Makes the process look at its events no later than `at`.
void DueBy(ProcessPlace& place, uint64_t at) {
  if (place.next_event > at) place.next_event = at;
}

}  // namespace

bool SharedSlices::IsWantedBesides(uint32_t gpu, uint32_t place) const {
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const ProcessPlace& other = shared_.segment_->places[i];
    if (i != place && other.incarnation != 0 && other.gpus[gpu].wants != 0) return true;
  }
  return false;
}

// Whether a live process has the SMs, for a plausible slice. A slice that no other process contested was extended again and
// again, so it may have begun long ago.
bool SharedSlices::IsSane(const SharedGpu& gpu, uint64_t now) const {
  const uint32_t owner = gpu.owner;
  if (owner >= kPlaces || shared_.segment_->places[owner].incarnation == 0) return false;
  const uint64_t start = gpu.slice_start, end = gpu.slice_end;
  const uint64_t far = 2 * (shared_.settings_.slice + shared_.settings_.slice_switch) + kLookEvery;
  return start < end && start <= now + far && end <= now + far;
}

// When this process lost the SMs. The stored time may be nonsense, so it is clamped.
uint64_t SharedSlices::LostAt(uint32_t gpu, uint64_t now) const {
  constexpr uint64_t kSlices = 64;
  const uint64_t lost = shared_.own().gpus[gpu].lost_at;
  const uint64_t most = kSlices * shared_.settings_.slice;
  return std::min(now, std::max(lost, now - std::min(now, most)));
}

// Gives the SMs to the next process that wants them, counting from the last that had them.
void SharedSlices::Grant(uint32_t number, uint64_t at) {
  Segment& segment = *shared_.segment_;
  SharedGpu& gpu = segment.gpus[number];
  const uint32_t last = gpu.last_owner;
  for (uint32_t step = 1; step <= kPlaces; ++step) {
    const uint32_t i = (last < kPlaces ? last + step : step - 1) % kPlaces;
    ProcessPlace& place = segment.places[i];
    if (place.incarnation == 0 || place.gpus[number].wants == 0) continue;
    if (shared_.IsDead(i)) {
      place.gpus[number].wants = 0;
      continue;
    }
    const uint64_t start = at + (last < kPlaces && i != last ? shared_.settings_.slice_switch : 0);
    gpu.slice_start = start;
    gpu.slice_end = start + shared_.settings_.slice;
    gpu.contended = IsWantedBesides(number, i) ? 1 : 0;
    place.gpus[number].lost_at = kForever;
    DueBy(place, start);
    // Written last: if this process is killed earlier, no other process believes in a slice that does not exist.
    gpu.owner = gpu.last_owner = i;
    return;
  }
  gpu.owner = kNobody;
  gpu.contended = 0;
}

void SharedSlices::Release(uint32_t place, uint64_t now) {
  Segment& segment = *shared_.segment_;
  for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
    segment.places[place].gpus[gpu].wants = 0;
    if (segment.gpus[gpu].owner == place) Grant(gpu, now);
  }
}

void SharedSlices::Notice(Device& device, Timeline& timeline, uint64_t now) {
  const SharedDevice::Locked locked(shared_);
  const auto number = static_cast<uint32_t>(device.which);
  if (!shared_.joined() || shared_.segment_->gpus[number].owner == shared_.place()) return;
  device.Pause(timeline, LostAt(number, now));
}

uint64_t SharedSlices::Update(Device& device, Timeline& timeline, uint64_t now) {
  const SharedDevice::Locked locked(shared_);
  if (!shared_.joined()) return kForever;
  shared_.Repair();
  Segment& segment = *shared_.segment_;
  const auto number = static_cast<uint32_t>(device.which);
  SharedGpu& gpu = segment.gpus[number];
  const SharedSettings& settings = shared_.settings_;
  const bool wall = settings.virtual_clock == 0;
  const uint32_t self = shared_.place();
  const bool wants = device.wants_sms();
  shared_.own().gpus[number].wants = wants ? 1 : 0;

  uint32_t owner = gpu.owner;
  if (owner >= kPlaces || (owner == self && !wants) || !IsSane(gpu, now)) {
    Grant(number, now);
  } else if (wall && owner != self && wants && shared_.IsDead(owner)) {
    shared_.DeclareOver(owner);
  } else if (gpu.contended != 0 && now >= gpu.slice_end && (owner == self || wall)) {
    const uint64_t end = AsTime(gpu.slice_end);
    segment.places[owner].gpus[number].lost_at = end;
    // A process that does not look at its events gets no further slices until it does.
    if (owner != self) segment.places[owner].gpus[number].wants = 0;
    Grant(number, owner == self && !wall ? now : end);
  }

  owner = gpu.owner;
  if (owner < kPlaces && owner != self && wants) {
    if (gpu.contended == 0) {
      // The owner was alone and went on, slice after slice.
      const uint64_t end = AsTime(gpu.slice_end);
      if (end < now) {
        gpu.slice_end = end + (now - end + settings.slice - 1) / settings.slice * settings.slice;
      }
      gpu.contended = 1;
    }
    DueBy(segment.places[owner], AsTime(gpu.slice_end));
  }

  const uint64_t start = AsTime(gpu.slice_start), end = AsTime(gpu.slice_end);
  if (owner == self && now >= start) {
    device.Resume(timeline, wall ? start : now);
    return gpu.contended != 0 ? std::max(end, now + 1) : kForever;
  }
  device.Pause(timeline, owner == self ? now : LostAt(number, now));
  if (owner == self) return start;
  return wants && wall ? std::min(std::max(end, now + 1), now + kLookEvery) : kForever;
}

}  // namespace gpushare::sim
