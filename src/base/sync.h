// SPDX-License-Identifier: Apache-2.0
// A mutex whose use clang checks at compile time (-Wthread-safety).
//
//   base::Mutex mu;
//   int count ABSL_GUARDED_BY(mu);
//   { base::MutexLock lock(&mu); ++count; }
//
// It is std::mutex beneath, and not absl::Mutex, because ThreadSanitizer must see it: a distribution's
// Abseil archives are not instrumented, so what their mutex protects would be reported as races.
#ifndef GPUSHARE_BASE_SYNC_H_
#define GPUSHARE_BASE_SYNC_H_

#include <mutex>

#include "absl/base/thread_annotations.h"

namespace gpushare::base {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  // Tells the analysis, without checking, that the caller holds the mutex.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_SYNC_H_
