// SPDX-License-Identifier: Apache-2.0
#include "sim/shared_layout.h"

#include "sim/clock.h"

namespace gpushare::sim {
namespace {

bool IsTime(uint64_t at) { return at < kLatest || at == kForever; }

}  // namespace

std::string CheckSegment(const Segment& segment, const SharedSettings& settings) {
  if (segment.magic != kSegmentMagic || segment.version != kSegmentVersion) {
    return "it is not the state of a shared device of this version";
  }
  if (!(segment.settings == settings)) return "its settings changed";
  const uint64_t incarnations = segment.incarnations;
  uint64_t left = settings.memory;
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const ProcessPlace& place = segment.places[i];
    const uint64_t incarnation = place.incarnation;
    if (incarnation == 0) continue;
    const std::string name = "the process in place " + std::to_string(i);
    if (incarnation > incarnations) return name + " has a number that was not given out";
    for (uint32_t other = 0; other < i; ++other) {
      if (segment.places[other].incarnation == incarnation) return name + " is there twice";
    }
    const uint64_t bytes = place.bytes;
    if (bytes > left) return name + " holds more memory than there is";
    left -= bytes;
    if (!IsTime(place.next_thread) || !IsTime(place.next_event)) {
      return name + " has to run at a time that is none";
    }
  }
  for (const Teardown& teardown : segment.teardowns) {
    if (teardown.incarnation == 0) continue;
    if (teardown.incarnation > incarnations || !IsTime(teardown.freed_at)) {
      return "the memory of a dead process is not described in full";
    }
    const uint64_t bytes = teardown.bytes;
    if (bytes > left) return "dead processes hold more memory than there is";
    left -= bytes;
  }
  for (const SharedEvent& event : segment.events) {
    if (event.number > segment.event_numbers) return "an event has a number that was not given out";
    for (uint32_t i = 0; i < kPlaces; ++i) {
      if (event.completed[i] > event.recorded[i]) {
        return "an event is complete more often than recorded";
      }
    }
  }
  const uint32_t holder = segment.holder;
  if (holder != kNobody && (holder >= kPlaces || segment.places[holder].incarnation == 0)) {
    return "a process holds the turn that does not exist";
  }
  const uint32_t owner = segment.owner;
  if (owner != kNobody && (owner >= kPlaces || segment.places[owner].incarnation == 0)) {
    return "a process has the SMs that does not exist";
  }
  if (owner != kNobody && segment.slice_end <= segment.slice_start) return "a slice has no length";
  if (segment.now >= kLatest) return "the virtual time is none";
  return std::string();
}

}  // namespace gpushare::sim
