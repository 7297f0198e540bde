// SPDX-License-Identifier: Apache-2.0
#include "gate/recorder.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gpushare::gate {

Recorder::~Recorder() = default;

void Recorder::Start(uint32_t capacity) {
  base::MutexLock lock(&mutex_);
  const size_t size = std::bit_ceil(std::clamp<size_t>(capacity, 1, kMostCapacity));
  if (ring_ == nullptr || ring_->slots.size() < size) {
    rings_.push_back(std::make_unique<Ring>(size));
    ring_ = rings_.back().get();
  }
  read_ = ring_->next.load(std::memory_order_acquire);
  on_.store(ring_, std::memory_order_release);
}

void Recorder::Record(const TraceEvent& event, std::string_view tenant) {
  Ring* const ring = on_.load(std::memory_order_acquire);
  if (ring == nullptr) return;
  std::array<uint64_t, kWords> words{};
  tenant = tenant.substr(0, kMostName);
  words[0] = static_cast<uint64_t>(event.kind) | uint64_t{event.flags} << 8 |
             uint64_t{event.count} << 16 | uint64_t{tenant.size()} << 48;
  words[1] = static_cast<uint64_t>(event.begin.time_since_epoch().count());
  words[2] = static_cast<uint64_t>(event.end.time_since_epoch().count());
  words[3] = static_cast<uint64_t>(event.value);
  words[4] = event.other;
  std::memcpy(&words[5], tenant.data(), tenant.size());

  const uint64_t number = ring->next.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = ring->slots[number & ring->mask];
  // Another thread, a whole lap before or behind, is writing or has written here. One of the two events is lost.
  uint64_t turn = slot.turn.load(std::memory_order_relaxed);
  if (turn % 2 != 0 || turn > 2 * number ||
      !slot.turn.compare_exchange_strong(turn, 2 * number + 1, std::memory_order_acq_rel)) {
    return;
  }
  // A reader that sees a word of this event also sees this turn or a later one.
  for (size_t i = 0; i < kWords; ++i) slot.words[i].store(words[i], std::memory_order_release);
  slot.turn.store(2 * number + 2, std::memory_order_release);
}

std::vector<NamedEvent> Recorder::Read(size_t most, uint64_t* lost) {
  std::vector<NamedEvent> events;
  base::MutexLock lock(&mutex_);
  if (ring_ == nullptr) return events;
  const uint64_t end = ring_->next.load(std::memory_order_acquire);
  if (end - read_ > ring_->slots.size()) {
    *lost += end - read_ - ring_->slots.size();
    read_ = end - ring_->slots.size();
  }
  for (; read_ != end && events.size() < most; ++read_) {
    const Slot& slot = ring_->slots[read_ & ring_->mask];
    const uint64_t turn = slot.turn.load(std::memory_order_acquire);
    // The event's thread is still writing, or it gave way to a thread that was a lap behind. Only in the first case
    // will the event come. It is waited for only while recording goes on and the ring is at most half full.
    if (turn <= 2 * read_ + 1) {
      if (on() && end - read_ <= ring_->slots.size() / 2) break;
      ++*lost;
      continue;
    }
    std::array<uint64_t, kWords> words;
    for (size_t i = 0; i < kWords; ++i) {
      words[i] = slot.words[i].load(std::memory_order_acquire);
    }
    if (turn != 2 * read_ + 2 || slot.turn.load(std::memory_order_relaxed) != turn) {
      ++*lost;  // the event was overwritten
      continue;
    }
    NamedEvent& out = events.emplace_back();
    out.event.kind = static_cast<TraceEvent::Kind>(words[0] & 0xff);
    out.event.flags = static_cast<uint8_t>(words[0] >> 8);
    out.event.count = static_cast<uint32_t>(words[0] >> 16);
    out.event.begin = Time(Nanos(static_cast<int64_t>(words[1])));
    out.event.end = Time(Nanos(static_cast<int64_t>(words[2])));
    out.event.value = static_cast<int64_t>(words[3]);
    out.event.other = words[4];
    char name[kMostName + 1];
    std::memcpy(name, &words[5], sizeof(name));
    out.tenant.assign(name, std::min<size_t>(words[0] >> 48, kMostName));
  }
  return events;
}

}  // namespace gpushare::gate
