// SPDX-License-Identifier: Apache-2.0
// A lock that may be held across calls of the driver: waiters wait through the clock, so a virtual clock can hand on the
// turn. For rare and long sections: opening a GPU, retaining and releasing primary contexts, polling events.
//
//   base::ClockLock lock(clock, word);   // an atomic that starts at 0
//   base::ClockLock lock(clock, word, deadline);
//   if (!lock) return;                   // the deadline passed first
#ifndef GPUSHARE_BASE_CLOCK_LOCK_H_
#define GPUSHARE_BASE_CLOCK_LOCK_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace gpushare::base {

class ClockLock {
 public:
  ClockLock(Clock& clock, std::atomic<uint32_t>& word, Time deadline = kNever)
      : clock_(clock), word_(word) {
    uint32_t free = 0;
    if (word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire)) return;
    while (word_.exchange(kAwaited, std::memory_order_acquire) != 0) {
      if (deadline != kNever && clock_.Now() >= deadline) {
        held_ = false;  // at worst the holder makes one wake-up call for nobody
        return;
      }
      clock_.Wait(word_, kAwaited, deadline, Nanos(0));
    }
  }
  explicit operator bool() const { return held_; }
  ~ClockLock() {
    if (!held_) return;
    if (word_.exchange(0, std::memory_order_release) == kAwaited) clock_.Wake(word_, 1);
  }
  ClockLock(const ClockLock&) = delete;
  ClockLock& operator=(const ClockLock&) = delete;

 private:
  static constexpr uint32_t kHeld = 1, kAwaited = 2;

  Clock& clock_;
  std::atomic<uint32_t>& word_;
  bool held_ = true;
};

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_CLOCK_LOCK_H_
