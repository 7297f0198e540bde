// SPDX-License-Identifier: Apache-2.0
// A lock for critical sections of a few dozen instructions.
//
// Why a lock at all: its users change words that have to change together. Why not a mutex: the
// accounting runs below callers that hold anything (allocators, the interpreter's lock) and may not
// make a system call within a grant. What makes it safe: a section never calls out (no driver, no
// clock, no lock; the suballocating pool, when it grows, to the host's allocator), so its holder can
// only be delayed by the scheduler; a waiter gives its processor away after a short while for that case.
//
// Fork: a child may inherit a held lock, but none of its calls gets here (device/handles.h).
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
  static constexpr int kSpins = 128;  // longer than a section, shorter than a time slice

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
