// SPDX-License-Identifier: Apache-2.0
#include "sim/processes/layout.h"

#include "sim/clock/clock.h"

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
  uint64_t left[kGpus];
  for (uint64_t& of_one : left) of_one = settings.memory;
  // False: together the processes hold more of a GPU than there is.
  const auto take = [&left](uint32_t gpu, uint64_t bytes) {
    if (bytes > left[gpu]) return false;
    left[gpu] -= bytes;
    return true;
  };
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const ProcessPlace& place = segment.places[i];
    const uint64_t incarnation = place.incarnation;
    if (incarnation == 0) continue;
    const std::string name = "the process in place " + std::to_string(i);
    if (incarnation > incarnations) return name + " has a number that was not given out";
    for (uint32_t other = 0; other < i; ++other) {
      if (segment.places[other].incarnation == incarnation) return name + " is there twice";
    }
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
      if (!take(gpu, place.gpus[gpu].bytes)) return name + " holds more memory than there is";
    }
    if (!IsTime(place.next_thread) || !IsTime(place.next_event)) {
      return name + " has to run at a time that is none";
    }
  }
  for (const Teardown& teardown : segment.teardowns) {
    if (teardown.incarnation == 0) continue;
    if (teardown.incarnation > incarnations || !IsTime(teardown.freed_at)) {
      return "the memory of a dead process is not described in full";
    }
    for (uint32_t gpu = 0; gpu < kGpus; ++gpu) {
      if (!take(gpu, teardown.bytes[gpu])) return "dead processes hold more memory than there is";
    }
  }
  for (const SharedMemory& memory : segment.memories) {
    if (memory.number == 0) continue;
    const uint32_t owner = memory.owner, gpu = memory.gpu;
    if (memory.number > segment.memory_numbers || gpu >= kGpus || memory.holders == 0 ||
        (owner != kNobody && owner >= kPlaces)) {
      return "memory of several processes is not described in full";
    }
    if (owner == kNobody && !take(gpu, memory.bytes)) {
      return "memory of several processes is more than there is";
    }
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
  for (const SharedGpu& gpu : segment.gpus) {
    const uint32_t owner = gpu.owner;
    if (owner != kNobody && (owner >= kPlaces || segment.places[owner].incarnation == 0)) {
      return "a process has the SMs that does not exist";
    }
    if (owner != kNobody && gpu.slice_end <= gpu.slice_start) return "a slice has no length";
  }
  if (segment.now >= kLastNow) return "the virtual time is none";
  return std::string();
}

}  // namespace gpushare::sim
