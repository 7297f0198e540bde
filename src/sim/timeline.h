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
  Due due;
  uint32_t count;
};

class Timeline {
 public:
  bool empty() const { return heap_.empty(); }
  uint64_t next() const { return heap_.empty() ? kForever : heap_[0].at; }

  void Push(uint64_t at, Command* command, Due due, uint32_t count) {
    TimelineEvent event{at, ++seq_, command, command->generation, due, count};
    size_t i = heap_.size();
    heap_.push_back(event);
    while (i > 0) {
      const size_t parent = (i - 1) / 2;
      if (!Before(event, heap_[parent])) break;
      heap_[i] = heap_[parent];
      i = parent;
    }
    heap_[i] = event;
  }

  TimelineEvent Pop() {
    const TimelineEvent top = heap_[0];
    const TimelineEvent last = heap_.back();
    heap_.pop_back();
    const size_t size = heap_.size();
    if (size > 0) {
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
    return top;
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
