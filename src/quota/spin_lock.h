// SPDX-License-Identifier: Apache-2.0
// A lock for critical sections of a few dozen instructions.
//
// A lock is needed because its users change several words that have to change together. It is not a mutex because the
// accounting runs below callers that may hold any lock (allocators, the interpreter's lock), and a grant must not make a system
// call. It is safe because a section waits for nothing: it calls neither the driver nor a clock, and takes no mutex. So the
// holder can only be delayed by the scheduler, and for that case a waiter yields the processor after a short while.
//
// Order: some sections take another spin lock. They take only one that stands further down:
//
//   1. of a pool, books::Pools: charges what a reading finds beyond the books (Adopt), and looks up who waits (Free)
//   2. of a child, Account::child_lock_: charges its parent as well
//   3. LoanBook::lock_
//
// The mutex of a WaitingLine comes before 2 and 3, since Serve() charges with it held, and is never taken in a section. Within
// all other spin locks none is taken, nor are they taken within another: PointerTable's, SharedMemory's, those of made pools,
// graphs and the registration of pools in src/books, MemoryPool's, GpuSession's.
//
// The host's allocator may be called in sections of the books' pools, made pools, graphs and shared memory, in those of
// MemoryPool, when an account joins a LoanBook, and by checks of invariants. It has locks of its own, below all of these.
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
