// SPDX-License-Identifier: Apache-2.0
// What the devices will do, ordered by (time, sequence).
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
  kBatch,   // groups of a kernel on SMs that the device knows finish; `count`: the batch
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

// A binary heap. What nearly every call does is inline and short; sifting is not.
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
    // Later than all of its time: only an earlier time goes up.
    if (i != 0 && at < heap_[(i - 1) / 2].at) SiftUp(i);
  }

  const TimelineEvent& top() const { return heap_[0]; }

  void Pop() {
    if (--size_ > 0) SiftDown();
  }

  void Clear() { size_ = 0; }
  // Takes out every event of which `which` is true, in no order.
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
  // With the order among events of one time that it had.
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
  void SiftDown();  // the event behind the last, from the top

  std::unique_ptr<TimelineEvent[]> heap_;
  size_t size_ = 0, capacity_ = 0;
  uint64_t seq_ = 0;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_DEVICE_TIMELINE_H_
