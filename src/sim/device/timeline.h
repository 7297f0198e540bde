// SPDX-License-Identifier: Apache-2.0
// Future events of the devices, ordered by (time, sequence).
#ifndef GPUSHARE_SIM_DEVICE_TIMELINE_H_
#define GPUSHARE_SIM_DEVICE_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/stream/command.h"

namespace gpushare::sim {

enum class Due : uint32_t {
  kStart,   // the command's earliest start has come
  kGroups,  // `count` groups of a kernel finish
  kDone,    // a copy, set or timed record finishes
  kBatch,   // a batch of groups on SMs known by number finishes; `count`: its index
};

struct TimelineEvent {
  uint64_t at;
  uint64_t seq;
  Command* command;
  uint32_t generation;
  uint32_t
      what;  // count << 2 | due: as bit fields, the second would wait for the store of the first

  Due due() const { return static_cast<Due>(what & 3); }
  uint32_t count() const { return what >> 2; }
};
static_assert(sizeof(TimelineEvent) == 32, "a power of two keeps the heap's indices cheap");

// A binary heap. The parts that nearly every call uses are inline and short; sifting is not.
class Timeline {
 public:
  bool empty() const { return size_ == 0; }
  uint64_t next() const { return size_ == 0 ? kForever : heap_[0].at; }

  void Push(uint64_t at, Command* command, Due due, uint32_t count) {
    if (size_ == capacity_) [[unlikely]]
      Grow();
    const size_t i = size_++;
    heap_[i] = {.at = at,
                .seq = ++seq_,
                .command = command,
                .generation = command->generation,
                .what = count << 2 | static_cast<uint32_t>(due)};
    // It has the latest sequence, so it moves up only past later times.
    if (i != 0 && at < heap_[(i - 1) / 2].at) SiftUp(i);
  }

  const TimelineEvent& top() const { return heap_[0]; }

  void Pop() {
    if (--size_ > 0) SiftDown();
  }

  void Clear() { size_ = 0; }
  // Removes every event for which `which` is true, in no particular order.
  template <typename F>
  void Extract(F&& which, std::vector<TimelineEvent>* out) {
    size_t kept = 0;
    for (size_t i = 0; i < size_; ++i) {
      if (which(heap_[i])) {
        out->push_back(heap_[i]);
      } else {
        heap_[kept++] = heap_[i];
      }
    }
    size_ = 0;
    for (size_t i = 0; i < kept; ++i) Insert(heap_[i]);
  }
  // Adds an event that keeps its old sequence, and so its order among events of the same time.
  void Insert(TimelineEvent event) {
    if (size_ == capacity_) Grow();
    heap_[size_] = event;
    SiftUp(size_++);
  }

 private:
  static bool Before(const TimelineEvent& a, const TimelineEvent& b) {
    return a.at != b.at ? a.at < b.at : a.seq < b.seq;
  }
  void Grow();
  void SiftUp(size_t i);
  void SiftDown();  // moves the event behind the last one down from the top

  std::unique_ptr<TimelineEvent[]> heap_;
  size_t size_ = 0, capacity_ = 0;
  uint64_t seq_ = 0;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_DEVICE_TIMELINE_H_
