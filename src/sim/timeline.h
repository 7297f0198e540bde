// SPDX-License-Identifier: Apache-2.0
// What the devices will do, ordered by (time, sequence).
#ifndef GPUSHARE_SIM_TIMELINE_H_
#define GPUSHARE_SIM_TIMELINE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/command.h"

namespace gpushare::sim {

enum class Due : uint32_t {
  kStart,   // the command's earliest start has come
  kGroups,  // `count` groups of a kernel finish
  kDone,    // a copy, set or timed record finishes
};

struct TimelineEvent {
  uint64_t at;
  uint64_t seq;
  Command* command;
  uint32_t generation;
  uint32_t due : 2;  // Due
  uint32_t count : 30;
};
static_assert(sizeof(TimelineEvent) == 32, "a power of two keeps the heap's indices cheap");

class Timeline {
 public:
  bool empty() const { return heap_.empty(); }
  uint64_t next() const { return heap_.empty() ? kForever : heap_[0].at; }

  // Fields are written where they stay, and read one by one: copying an event that was just written
  // costs more than everything else that is done to it.
  void Push(uint64_t at, Command* command, Due due, uint32_t count) {
    size_t i = heap_.size();
    TimelineEvent& added = heap_.emplace_back();
    added.at = at;
    added.seq = ++seq_;
    added.command = command;
    added.generation = command->generation;
    added.due = static_cast<uint32_t>(due) & 3;
    added.count = count & 0x3fffffff;
    // Later than all of its time: only an earlier time goes up.
    if (i == 0 || heap_[(i - 1) / 2].at <= at) return;
    const TimelineEvent event = added;
    while (i > 0) {
      const size_t parent = (i - 1) / 2;
      if (heap_[parent].at <= at) break;
      heap_[i] = heap_[parent];
      i = parent;
    }
    heap_[i] = event;
  }

  const TimelineEvent& top() const { return heap_[0]; }

  void Pop() {
    const size_t size = heap_.size() - 1;
    if (size > 0) {
      const TimelineEvent last = heap_[size];
      size_t i = 0;
      for (;;) {
        size_t child = 2 * i + 1;
        if (child >= size) break;
        if (child + 1 < size && Before(heap_[child + 1], heap_[child])) ++child;
        if (!Before(heap_[child], last)) break;
        heap_[i] = heap_[child];
        i = child;
      }
      heap_[i] = last;
    }
    heap_.pop_back();
  }

  void Clear() { heap_.clear(); }

 private:
  static bool Before(const TimelineEvent& a, const TimelineEvent& b) {
    return a.at != b.at ? a.at < b.at : a.seq < b.seq;
  }
  std::vector<TimelineEvent> heap_;
  uint64_t seq_ = 0;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_TIMELINE_H_
