// SPDX-License-Identifier: Apache-2.0
// A lock for critical sections of a few dozen instructions.
//
// A lock is needed because its users change several words that have to change together. It is not a mutex because the
// accounting runs below callers that may hold any lock (allocators, the interpreter's lock), and a grant must not make a system
// call. It is safe because a section never calls out (to the driver, a clock or another lock; only the suballocating pool calls
// the host's allocator when it grows). So the holder can only be delayed by the scheduler, and for that case a waiter yields
// the processor after a short while.
//
// Fork: a child may inherit a locked lock, but none of its calls reaches this code (device/handles.h).
#ifndef GPUSHARE_QUOTA_SPIN_LOCK_H_
#define GPUSHARE_QUOTA_SPIN_LOCK_H_

#include <sched.h>

#include <atomic>

namespace gpushare::quota {

class SpinLock {
 public:
  void lock() {
    if (!try_lock()) [[unlikely]]
      LockSlow();
  }
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 128;  // takes longer than a section, and less than a time slice

  [[gnu::noinline, gnu::cold]] void LockSlow() {
    do {
      for (int spins = 0; held_.load(std::memory_order_relaxed); ++spins) {
        if (spins < kSpins) {
#if defined(__x86_64__)
          __builtin_ia32_pause();
#elif defined(__aarch64__)
          asm volatile("yield" ::: "memory");
#endif
        } else {
          sched_yield();
        }
      }
    } while (!try_lock());
  }

  std::atomic<bool> held_{false};
};

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_SPIN_LOCK_H_
