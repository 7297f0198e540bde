// SPDX-License-Identifier: Apache-2.0
// Records what the broker grants, who waits for it, and what processes hold of memory.
//
//   Recorder recorder;
//   recorder.Look(registry, now);                      // after each look at the books; nothing, while nobody asks
//   Recording first = recorder.Take(registry, now);    // records from now on
//   Recording next = recorder.Take(registry, now, first.next);
//
// It goes on until nobody has asked for ten seconds. Any number may ask, each from the number that it was told last.
// The latest events are kept, `capacity` of them; of older ones it says how many there were.
//
// What it knows is what the broker knows: when a grant was given, exactly; when it was used, at the look that saw it.
// Pure but for the pages behind seats. One caller at a time.
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
  static constexpr size_t kMostAtOnce = 4096;    // events of a recording: who wants more asks again
  // Of memory and refusals, of all processes together: pages change as often as their owners like, and others' events
  // are to stay.
  static constexpr int kMostEachMilli = 20;

  explicit Recorder(size_t capacity = size_t{1} << 16) : capacity_(capacity) {}

  void Look(const Registry& registry, Time now);
  // `from`: the number that was told last; none: from now on.
  Recording Take(const Registry& registry, Time now, std::optional<uint64_t> from = std::nullopt);

 private:
  // What was seen of a process at a GPU the last time.
  struct Seen {
    RecordedEvent who;  // what its events have in common
    int64_t granted_ns = 0, bypassed_ns = 0, device_from_ns = 0;
    uint64_t memory = UINT64_MAX, memory_granted = 0, denied = 0;
    std::optional<RecordedEvent> lease, wait, device;  // under way
    uint64_t look = 0;                                 // the latest in which it was there

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
  Time milli_{};                      // since then
  int told_ = 0;                      // so many of memory and refusals were told
  std::deque<RecordedEvent> events_;  // the last of them has the number next_ - 1
  std::map<std::pair<uint64_t, const Registry::Place*>, Seen> seen_;  // by session
  std::set<std::pair<std::string, std::string>> suspended_;           // GPUs and tenants
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_RECORDER_H_
