// SPDX-License-Identifier: Apache-2.0
// Records the broker's grants, the waits for them, and the memory that processes hold.
//
//   Recorder recorder;
//   recorder.Look(registry, now);                      // after each look at the books; does nothing unless recording
//   Recording first = recorder.Take(registry, now);    // starts recording
//   Recording next = recorder.Take(registry, now, first.next);
//
// Recording goes on until nobody has asked for ten seconds. Any number of readers may ask, each from the number that it
// was told last. The latest `capacity` events are kept; of older ones only the number is reported.
//
// The recorder knows what the broker knows: the exact time of a grant, and of its use only the look that saw it.
// Pure except for the pages behind seats. Threading: one caller at a time.
#ifndef GPUSHARE_BROKER_RECORDER_H_
#define GPUSHARE_BROKER_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/time.h"
#include "broker/recording.h"
#include "broker/registry.h"

namespace gpushare::broker {

class Recorder {
 public:
  static constexpr Nanos kGoesOn = Seconds(10);  // after the latest question
  // Events in one recording; the caller asks again for more.
  static constexpr size_t kMostAtOnce = 4096;
  // Limits events of memory and refusals of all processes together: a process may change its pages as often as it likes,
  // and must not push out the events of others.
  static constexpr int kMostEachMilli = 20;

  explicit Recorder(size_t capacity = size_t{1} << 16) : capacity_(capacity) {}

  void Look(const Registry& registry, Time now);
  // `from` is the number that was told last; without it, the recording starts now.
  Recording Take(const Registry& registry, Time now, std::optional<uint64_t> from = std::nullopt);

 private:
  // What the last look saw of a process on a GPU.
  struct Seen {
    RecordedEvent who;  // the common part of its events
    int64_t granted_ns = 0, bypassed_ns = 0, device_from_ns = 0;
    uint64_t memory = UINT64_MAX, memory_granted = 0, denied = 0;
    std::optional<RecordedEvent> lease, wait, device;  // not ended yet
    uint64_t look = 0;                                 // the latest look that saw it

    RecordedEvent EventOf(RecordedEvent::Kind kind, int64_t value, uint64_t other, Time at) const;
  };

  void LookAt(const Registry::Session& session, const Registry::Place& place, Time now);
  void LookAtTime(const TimeBook::Member& member, Seen& seen, Time now);
  void LookAtMemory(const Registry::Place& place, Seen& seen, Time now);
  void LookAtTenants(const Registry& registry, Time now);
  void Open(std::optional<RecordedEvent>& slot, const Seen& seen, RecordedEvent::Kind kind,
            int64_t value, Time now);
  void Close(std::optional<RecordedEvent>& slot, Time now);
  void CloseAll(Seen& seen, Time now);
  void Instant(const Seen& seen, RecordedEvent::Kind kind, int64_t value, uint64_t other, Time now);
  bool MayTell(Time now);
  void Add(RecordedEvent event);
  void Forget();

  const size_t capacity_;
  bool on_ = false;
  Time until_{};
  uint64_t next_ = 0, look_ = 0;
  Time milli_{};                      // the beginning of the current millisecond
  int told_ = 0;                      // events of memory and refusals recorded since `milli_`
  std::deque<RecordedEvent> events_;  // the last has the number next_ - 1
  std::map<std::pair<uint64_t, const Registry::Place*>, Seen> seen_;  // by session and place
  std::set<std::pair<std::string, std::string>> suspended_;           // GPUs and tenants
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_RECORDER_H_
