// SPDX-License-Identifier: Apache-2.0
// A lock that may be held across calls of the driver: who waits
// for it does so through the clock, so that on the virtual clock the turn goes on. For the rare and
// long: opening a GPU.
//
//   ClockLock lock(clock, word);   // an atomic that starts at 0
#ifndef GPUSHARE_DEVICE_CLOCK_LOCK_H_
#define GPUSHARE_DEVICE_CLOCK_LOCK_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace gpushare::device {

class ClockLock {
 public:
  ClockLock(base::Clock& clock, std::atomic<uint32_t>& word) : clock_(clock), word_(word) {
    while (word_.exchange(1, std::memory_order_acquire) != 0) {
      clock_.Wait(word_, 1, kNever, Nanos(0));
    }
  }
  ~ClockLock() {
    word_.store(0, std::memory_order_release);
    clock_.Wake(word_, 1);
  }
  ClockLock(const ClockLock&) = delete;
  ClockLock& operator=(const ClockLock&) = delete;

 private:
  base::Clock& clock_;
  std::atomic<uint32_t>& word_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_CLOCK_LOCK_H_
