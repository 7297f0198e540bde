// SPDX-License-Identifier: Apache-2.0
#include "sim/device/timeline.h"

#include <algorithm>
#include <utility>

namespace gpushare::sim {

void Timeline::Grow() {
  const size_t capacity = std::max<size_t>(64, 2 * capacity_);
  auto grown = std::make_unique<TimelineEvent[]>(capacity);
  std::copy_n(heap_.get(), size_, grown.get());
  heap_ = std::move(grown);
  capacity_ = capacity;
}

void Timeline::SiftUp(size_t i) {
  const TimelineEvent event = heap_[i];
  while (i > 0) {
    const size_t parent = (i - 1) / 2;
    if (!Before(event, heap_[parent])) break;
    heap_[i] = heap_[parent];
    i = parent;
  }
  heap_[i] = event;
}

void Timeline::SiftDown() {
  const TimelineEvent event = heap_[size_];
  size_t i = 0;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= size_) break;
    if (child + 1 < size_ && Before(heap_[child + 1], heap_[child])) ++child;
    if (!Before(heap_[child], event)) break;
    heap_[i] = heap_[child];
    i = child;
  }
  heap_[i] = event;
}

}  // namespace gpushare::sim
