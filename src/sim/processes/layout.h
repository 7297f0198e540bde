// SPDX-License-Identifier: Apache-2.0
// The state that processes sharing simulated GPUs have in common, in a file that each of them maps.
//
// Any process may write anything here, including nonsense, and may be killed between any two writes. So nothing read from here
// is used as an index or in a sum before it is checked, and no totals are stored: what is held of a device is counted from the
// places each time.
#ifndef GPUSHARE_SIM_PROCESSES_LAYOUT_H_
#define GPUSHARE_SIM_PROCESSES_LAYOUT_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace gpushare::sim {

inline constexpr uint32_t kPlaces = 64;  // processes at the same time
inline constexpr uint32_t kTeardowns = 64;
inline constexpr uint32_t kGpus = 8;  // that share one name
inline constexpr uint32_t kEngines = 3;
inline constexpr uint32_t kNobody = UINT32_MAX;
inline constexpr uint64_t kSegmentMagic = 0x67707573'68617265;
inline constexpr uint32_t kSegmentVersion = 5;
// Later times are nonsense. Adding to an earlier one does not overflow.
inline constexpr uint64_t kLatest = UINT64_MAX / 4 * 3;
// A virtual clock beyond this is nonsense.
inline constexpr uint64_t kLastNow = UINT64_MAX / 2;
// A nonsensical time is replaced by one long before kLastNow. If it were replaced by kLastNow, each process's clock would go on
// from there, no process would believe another's clock, and they would hand each other the turn for ever.
inline constexpr uint64_t AsNow(uint64_t now) { return now < kLastNow ? now : kLastNow / 2; }

// What one process uses of one GPU.
struct ShareOfGpu {
  std::atomic<uint64_t> bytes;    // of the GPU's memory
  std::atomic<uint64_t> lost_at;  // when another process got the SMs
  std::atomic<uint32_t> wants;    // it has kernels, so it wants the SMs
  std::atomic<uint64_t> sample;   // its latest use of the GPU (SampleOf); 0: none yet
};

// One past interval of 200 ms: its number since the clock began, and the percentages of it with kernels and with copies.
inline constexpr uint64_t kSample = 200'000'000;
inline constexpr uint64_t SampleOf(uint64_t end, uint32_t kernels, uint32_t copies) {
  return end / kSample << 16 | uint64_t{kernels & 0xff} << 8 | (copies & 0xff);
}

// One process. Written by that process, and by the process that declares it dead.
struct alignas(64) ProcessPlace {
  std::atomic<uint64_t> incarnation;  // unique; 0: the place is free
  std::atomic<int32_t> pid;           // in its own PID namespace
  // ---- The virtual clock.
  std::atomic<uint32_t> turn;         // the word that the process sleeps on; 1: it has the turn
  std::atomic<uint32_t> request;      // a thread came in from outside the clock
  std::atomic<uint32_t> waits;        // some thread waits for the device or a word
  std::atomic<uint64_t> next_thread;  // when a thread has to run next
  std::atomic<uint64_t> next_event;   // when its part of the devices has its next event
  ShareOfGpu gpus[kGpus];
};

// Memory of a process that has ended, while it is being torn down.
struct Teardown {
  std::atomic<uint64_t> incarnation;  // of that process; 0: free
  std::atomic<uint64_t> bytes[kGpus];
  std::atomic<uint64_t> freed_at;
  std::atomic<int32_t> pid;
};

// An event that several processes use (processes/event.h).
struct SharedEvent {
  std::atomic<uint64_t> number;  // unique; 0: free
  std::atomic<uint64_t> latest;  // record: its place and that place's count (RecordOf); 0: none
  std::atomic<uint64_t> users, waiting;  // one bit per place
  // Per place: two places that record at the same time complete in any order.
  std::atomic<uint64_t> recorded[kPlaces], completed[kPlaces];
};
inline constexpr uint32_t kSharedEvents = 256;
inline constexpr uint64_t RecordOf(uint32_t place, uint64_t count) {
  return uint64_t{place + 1} << 56 | (count & ((uint64_t{1} << 56) - 1));
}
static_assert(kPlaces == 64, "there is a bit for each");

// Physical memory (cuMemCreate) of which a process exported a descriptor. The process that made it is charged with it as long
// as it holds it. Afterwards it belongs to nobody, and is counted here as long as some process holds it.
struct SharedMemory {
  std::atomic<uint64_t> number;  // unique; 0: free
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> holders;     // one bit per place
  std::atomic<uint32_t> gpu, owner;  // `owner`: the place that is charged, or kNobody
};
inline constexpr uint32_t kSharedMemories = 1024;

// Settings that must be the same in all processes.
struct SharedSettings {
  uint64_t memory, teardown, slice, slice_switch;
  double h2d, d2h, d2d;
  uint32_t sms, serial, virtual_clock, processes, devices;
  bool operator==(const SharedSettings&) const = default;
};

// One GPU.
struct SharedGpu {
  std::atomic<uint32_t> owner;  // which process has the SMs, or kNobody
  std::atomic<uint32_t> last_owner;
  std::atomic<uint32_t> contended;  // another process wants the SMs, so the slice ends
  std::atomic<uint64_t> slice_start, slice_end;
  std::atomic<uint64_t> engine_end[kEngines];  // when each copy engine ends its work
};

struct Segment {
  std::atomic<uint64_t> magic;  // written last
  std::atomic<uint32_t> version;
  std::atomic<int32_t> cpu;  // that all registered threads share; -1: not chosen
  SharedSettings settings;
  std::atomic<uint64_t> incarnations;  // how many there have been
  std::atomic<uint64_t> now;           // the virtual clock when the turn was last handed over
  std::atomic<uint32_t> holder;        // which process has the turn, or kNobody
  SharedGpu gpus[kGpus];
  ProcessPlace places[kPlaces];
  Teardown teardowns[kTeardowns];
  std::atomic<uint64_t> event_numbers;
  SharedEvent events[kSharedEvents];
  std::atomic<uint64_t> memory_numbers;
  SharedMemory memories[kSharedMemories];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Checks the segment for a process with these settings. Empty when it is sound, else what is wrong. Call with its lock held.
std::string CheckSegment(const Segment& segment, const SharedSettings& settings);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_LAYOUT_H_
