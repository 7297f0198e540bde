// SPDX-License-Identifier: Apache-2.0
// The flight recorder of one GPU: a ring of the latest events, off until somebody asks for it.
//
//   if (recorder.on()) [[unlikely]] {
//     recorder.Record({.kind = TraceEvent::Kind::kWait, .begin = began, .end = now}, tenant.name);
//   }
//   ...
//   std::vector<NamedEvent> events = recorder.Read(1024, &lost);   // one reader at a time
//
// While it is off, it costs its callers one predicted branch, and nothing on the path of a launch that has
// credit. While it is on, an event is copied into the ring without a lock, which costs one atomic addition and
// a cache line or two. When the ring is full, the oldest events are overwritten and counted as lost.
//
// The name of the tenant is copied into the event, so that an event outlives its tenant.
//
// Threading: on(), Record() and Start() from any thread; Read() under a lock of the recorder's own.
#ifndef GPUSHARE_GATE_RECORDER_H_
#define GPUSHARE_GATE_RECORDER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "base/time.h"

namespace gpushare::gate {

struct TraceEvent {
  enum class Kind : uint8_t {
    kWait = 1,  // work held at the gate; value: device time asked for in ns
    kLease,     // a lease held; value: the hint in ns
    kDevice,    // settled by the meter; value: device time in ns, count: commands
    kCopyWait,  // a copy held for bandwidth; value: bytes, other: 0 to the device, 1 from it
    kMemory,    // an instant; value: bytes held, other: the limit
    kDenied,    // an instant: an allocation refused; value: bytes asked, other: bytes left
    kSuspend,   // an instant: suspended (value 1) or resumed (0)
  };
  // Bits of `flags`.
  static constexpr uint8_t kGaveUp = 1;       // a wait that ended without a turn
  static constexpr uint8_t kForLease = 2;     // a wait for a lease
  static constexpr uint8_t kExclusive = 4;    // a lease
  static constexpr uint8_t kOverrun = 8;      // a lease that was held longer than its maximum
  static constexpr uint8_t kOverdue = 16;     // device time charged before its marker was seen
  static constexpr uint8_t kDeviceFull = 32;  // refused by the driver, not by the quota

  Kind kind{};
  uint8_t flags = 0;
  uint32_t count = 0;
  Time begin{}, end{};  // host time; equal for an instant
  int64_t value = 0;
  uint64_t other = 0;
};

struct NamedEvent {
  TraceEvent event;
  std::string tenant;
};

class Recorder {
 public:
  static constexpr size_t kMostName = 63;  // longer names are cut
  static constexpr uint32_t kMostCapacity = 1u << 22;

  Recorder() = default;
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Forgets what was recorded before and records from now on. Keeps at least the latest `capacity` events
  // (1 to kMostCapacity, rounded up to a power of two).
  void Start(uint32_t capacity);
  void Stop() { on_.store(nullptr, std::memory_order_release); }
  bool on() const { return on_.load(std::memory_order_relaxed) != nullptr; }

  void Record(const TraceEvent& event, std::string_view tenant);

  // Takes up to `most` events, the oldest first. An event that is still being written ends the list. Adds
  // the number of events that were overwritten before they were read to `lost`.
  std::vector<NamedEvent> Read(size_t most, uint64_t* lost);

 private:
  static constexpr size_t kWords = 5 + (kMostName + 1) / 8;
  // `turn` is 2t+1 while event number t is being written here, and 2t+2 once it is written.
  struct alignas(128) Slot {
    std::atomic<uint64_t> turn{0};
    std::array<std::atomic<uint64_t>, kWords> words{};
  };
  struct Ring {
    explicit Ring(size_t size) : slots(size), mask(size - 1) {}
    std::vector<Slot> slots;
    const uint64_t mask;
    alignas(64) std::atomic<uint64_t> next{0};  // the number of the next event
  };

  std::atomic<Ring*> on_{nullptr};  // null: off
  base::Mutex mutex_;
  Ring* ring_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t read_ ABSL_GUARDED_BY(mutex_) = 0;
  // A thread may still be writing into a ring that was replaced, so all rings live as long as the recorder. Each is
  // larger than the one before.
  std::vector<std::unique_ptr<Ring>> rings_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_RECORDER_H_
