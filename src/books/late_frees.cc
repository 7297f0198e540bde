// SPDX-License-Identifier: Apache-2.0
#include "books/late_frees.h"

#include <iterator>
#include <new>
#include <utility>

#include "base/clock_lock.h"
#include "books/context_of.h"
#include "books/relaxed.h"

namespace gpushare::books {
bool LateFrees::Add(const Free& free, CUstream stream, Awaited* awaited) {
  const Relaxed relaxed(driver_);
  const ContextOf context(driver_, stream);
  try {
    List one{free};
    Free& late = one.front();
    late.context = context.get();
    late.place = tags_.Of(context.get());
    if (driver_.EventCreate(&late.event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
      if (driver_.EventRecord(late.event, stream) == CUDA_SUCCESS) {
        const base::MutexLock lock(&mutex_);
        Splice(std::move(one));
        if (awaited != nullptr) *awaited = AwaitedBy(*late.allocation.account);
        return true;
      }
      driver_.EventDestroy(late.event);
    }
  } catch (const std::bad_alloc&) {
    // Fall through: without an event, wait for the stream.
  }
  driver_.StreamSynchronize(stream);
  return false;
}

LateFrees::List LateFrees::TakeAll() {
  const base::MutexLock lock(&mutex_);
  List all;
  all.swap(frees_);
  return all;
}

void LateFrees::Splice(List frees) {
  frees_.splice(frees_.end(), frees);
  count_.store(frees_.size());
}

void LateFrees::PutBack(List frees) {
  const base::MutexLock lock(&mutex_);
  Splice(std::move(frees));
}

LateFrees::List LateFrees::TakeFinished() {
  List finished;
  if (empty()) return finished;
  const base::ClockLock looking(clock_, looking_);
  const Relaxed relaxed(driver_);
  List frees = TakeAll();
  for (auto free = frees.begin(); free != frees.end();) {
    const auto next = std::next(free);
    const CUresult result = driver_.EventQuery(free->event);
    // An event that no longer exists ended with its context. A lost context still holds its memory.
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE ||
        result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
      if (result == CUDA_SUCCESS) driver_.EventDestroy(free->event);
      finished.splice(finished.end(), frees, free);
    }
    free = next;
  }
  PutBack(std::move(frees));
  return finished;
}

void LateFrees::TellAwaited(Tell tell) {
  if (empty()) return;
  const base::ClockLock looking(clock_, looking_);
  List frees = TakeAll();
  for (Free& free : frees) {
    const quota::Account* const account = free.allocation.account;
    if (free.told || account == nullptr || !account->is_awaited()) continue;
    free.told = tell(free.context, free.event, *account);
  }
  PutBack(std::move(frees));
}

LateFrees::List LateFrees::Withdraw(const ContextTags::Set& ending) {
  List withdrawn;
  if (empty()) return withdrawn;
  const base::ClockLock looking(clock_, looking_);
  List frees = TakeAll();
  for (auto free = frees.begin(); free != frees.end();) {
    const auto next = std::next(free);
    if (ending[free->place] || ending[free->allocation.place]) {
      withdrawn.splice(withdrawn.end(), frees, free);
    }
    free = next;
  }
  PutBack(std::move(frees));
  return withdrawn;
}

LateFrees::List LateFrees::TakeOf(const quota::Account* account) {
  List taken;
  if (empty()) return taken;
  const base::ClockLock looking(clock_, looking_);
  const Relaxed relaxed(driver_);
  List frees = TakeAll();
  for (auto free = frees.begin(); free != frees.end();) {
    const auto next = std::next(free);
    if (free->allocation.account == account) {
      driver_.EventDestroy(free->event);
      taken.splice(taken.end(), frees, free);
    }
    free = next;
  }
  PutBack(std::move(frees));
  return taken;
}

uint64_t LateFrees::BytesOf(const quota::Account* account) {
  uint64_t bytes = 0;
  if (empty()) return bytes;
  const base::ClockLock looking(clock_, looking_);
  const Relaxed relaxed(driver_);
  List frees = TakeAll();
  for (const Free& free : frees) {
    if (free.allocation.account == account &&
        driver_.EventQuery(free.event) == CUDA_ERROR_NOT_READY) {
      bytes += free.allocation.bytes;
    }
  }
  PutBack(std::move(frees));
  return bytes;
}

}  // namespace gpushare::books
