// SPDX-License-Identifier: Apache-2.0
// What the processes that share simulated GPUs have in common, in a file that each of them maps.
//
// Every one of them may write anything here, also nonsense, and may be killed between any two writes. So
// nothing read from here is used as an index or added up before it was checked, and there are no sums
// beside their parts: what the device holds is counted anew from the places.
#ifndef GPUSHARE_SIM_PROCESSES_LAYOUT_H_
#define GPUSHARE_SIM_PROCESSES_LAYOUT_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace gpushare::sim {

inline constexpr uint32_t kPlaces = 64;  // processes at one time
inline constexpr uint32_t kTeardowns = 64;
inline constexpr uint32_t kGpus = 8;  // under one name
inline constexpr uint32_t kEngines = 3;
inline constexpr uint32_t kNobody = UINT32_MAX;
inline constexpr uint64_t kSegmentMagic = 0x67707573'68617265;
inline constexpr uint32_t kSegmentVersion = 5;
// Times beyond are nonsense: nothing added to one below overflows.
inline constexpr uint64_t kLatest = UINT64_MAX / 4 * 3;
// A virtual clock beyond this shows nonsense.
inline constexpr uint64_t kLastNow = UINT64_MAX / 2;
// Nonsense is taken for a time long before that. Were it taken for the last, the clock of each process would go
// on from there and none would believe another's: they would hand each other the turn for ever.
inline constexpr uint64_t AsNow(uint64_t now) { return now < kLastNow ? now : kLastNow / 2; }

// What one process has of one GPU.
struct ShareOfGpu {
  std::atomic<uint64_t> bytes;    // of its memory
  std::atomic<uint64_t> lost_at;  // since when another has the SMs
  std::atomic<uint32_t> wants;    // them: it has kernels
  std::atomic<uint64_t> sample;   // of what it used of the GPU (SampleOf); 0: none yet
};

// A stretch of 200 ms that is over: which since the clock began, and the percents of it with kernels and with copies.
inline constexpr uint64_t kSample = 200'000'000;
inline constexpr uint64_t SampleOf(uint64_t end, uint32_t kernels, uint32_t copies) {
  return end / kSample << 16 | uint64_t{kernels & 0xff} << 8 | (copies & 0xff);
}

// One process. Written by it, and by whoever declares it over.
struct alignas(64) ProcessPlace {
  std::atomic<uint64_t> incarnation;  // never the same twice; 0: free
  std::atomic<int32_t> pid;           // in its own namespace
  // ---- The virtual clock.
  std::atomic<uint32_t> turn;         // the word that it sleeps on: 1, the turn is its
  std::atomic<uint32_t> request;      // a thread came from outside the clock
  std::atomic<uint32_t> waits;        // some thread waits for the device or a word
  std::atomic<uint64_t> next_thread;  // when it has to run next
  std::atomic<uint64_t> next_event;   // what its part of the devices does next
  ShareOfGpu gpus[kGpus];
};

// Memory of a process that is no more.
struct Teardown {
  std::atomic<uint64_t> incarnation;  // whose; 0: free
  std::atomic<uint64_t> bytes[kGpus];
  std::atomic<uint64_t> freed_at;
  std::atomic<int32_t> pid;
};

// An event that several processes know (shared_event.h).
struct SharedEvent {
  std::atomic<uint64_t> number;  // never the same twice; 0: free
  std::atomic<uint64_t> latest;  // record: its place and the place's count (RecordOf); 0: none
  std::atomic<uint64_t> users, waiting;  // a bit for each place
  // Of each place: two that record at one time complete in any order.
  std::atomic<uint64_t> recorded[kPlaces], completed[kPlaces];
};
inline constexpr uint32_t kSharedEvents = 256;
inline constexpr uint64_t RecordOf(uint32_t place, uint64_t count) {
  return uint64_t{place + 1} << 56 | (count & ((uint64_t{1} << 56) - 1));
}
static_assert(kPlaces == 64, "there is a bit for each");

// Physical memory (cuMemCreate) that a process gave others a descriptor of. Whoever made it is charged with it while it
// lasts there; afterwards it is nobody's own, and counts here for as long as somebody holds it.
struct SharedMemory {
  std::atomic<uint64_t> number;  // never the same twice; 0: free
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> holders;     // a bit for each place
  std::atomic<uint32_t> gpu, owner;  // the place that is charged; kNobody
};
inline constexpr uint32_t kSharedMemories = 1024;

// What all must have configured alike.
struct SharedSettings {
  uint64_t memory, teardown, slice, slice_switch;
  double h2d, d2h, d2d;
  uint32_t sms, serial, virtual_clock, processes, devices;
  bool operator==(const SharedSettings&) const = default;
};

// One GPU.
struct SharedGpu {
  std::atomic<uint32_t> owner;  // of the SMs; kNobody
  std::atomic<uint32_t> last_owner;
  std::atomic<uint32_t> contended;  // another wants them: the slice ends
  std::atomic<uint64_t> slice_start, slice_end;
  std::atomic<uint64_t> engine_end[kEngines];  // when each copy engine has done what it was given
};

struct Segment {
  std::atomic<uint64_t> magic;  // written last
  std::atomic<uint32_t> version;
  std::atomic<int32_t> cpu;  // that registered threads of all processes run on; -1: not chosen
  SharedSettings settings;
  std::atomic<uint64_t> incarnations;  // how many there were
  std::atomic<uint64_t> now;           // of the virtual clock when the turn was last handed over
  std::atomic<uint32_t> holder;        // of the turn; kNobody
  SharedGpu gpus[kGpus];
  ProcessPlace places[kPlaces];
  Teardown teardowns[kTeardowns];
  std::atomic<uint64_t> event_numbers;
  SharedEvent events[kSharedEvents];
  std::atomic<uint64_t> memory_numbers;
  SharedMemory memories[kSharedMemories];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// What is wrong with it, by a process that knows its settings; empty when nothing is. With its lock held.
std::string CheckSegment(const Segment& segment, const SharedSettings& settings);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_LAYOUT_H_
