// SPDX-License-Identifier: Apache-2.0
#include "books/late_frees.h"

#include <utility>

#include "base/clock_lock.h"
#include "books/relaxed.h"

namespace gpushare::books {
namespace {

// An event lives in the context of the stream that it is recorded in, which need not be the current one.
class ContextOf {
 public:
  ContextOf(const driver::Table& driver, CUstream stream) : driver_(driver) {
    CUcontext current = nullptr;
    driver_.CtxGetCurrent(&current);
    if (driver_.StreamGetCtx(stream, &context_) != CUDA_SUCCESS || context_ == nullptr) {
      context_ = current;
    }
    pushed_ = context_ != current && driver_.CtxPushCurrent(context_) == CUDA_SUCCESS;
  }
  ~ContextOf() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.CtxPopCurrent(&popped);
  }
  ContextOf(const ContextOf&) = delete;
  ContextOf& operator=(const ContextOf&) = delete;

  CUcontext get() const { return context_; }

 private:
  const driver::Table& driver_;
  CUcontext context_ = nullptr;
  bool pushed_ = false;
};

}  // namespace

bool LateFrees::Add(Free free, CUstream stream) {
  const Relaxed relaxed(driver_);
  const ContextOf context(driver_, stream);
  free.place = tags_.Of(context.get());
  if (driver_.EventCreate(&free.event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
    if (driver_.EventRecord(free.event, stream) == CUDA_SUCCESS) {
      PutBack({free});
      return true;
    }
    driver_.EventDestroy(free.event);
  }
  // Without an event the free is waited for.
  driver_.StreamSynchronize(stream);
  return false;
}

std::vector<LateFrees::Free> LateFrees::TakeAll() {
  const base::MutexLock lock(&mutex_);
  return std::exchange(frees_, {});
}

void LateFrees::PutBack(const std::vector<Free>& frees) {
  const base::MutexLock lock(&mutex_);
  frees_.insert(frees_.end(), frees.begin(), frees.end());
  count_.store(frees_.size());
}

std::vector<LateFrees::Free> LateFrees::TakeFinished() {
  std::vector<Free> finished;
  if (empty()) return finished;
  const base::ClockLock looking(clock_, looking_);
  const Relaxed relaxed(driver_);
  std::vector<Free> pending;
  for (const Free& free : TakeAll()) {
    const CUresult result = driver_.EventQuery(free.event);
    // An event that is gone went with its context. A context that is lost still holds its memory.
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE ||
        result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
      if (result == CUDA_SUCCESS) driver_.EventDestroy(free.event);
      finished.push_back(free);
    } else {
      pending.push_back(free);
    }
  }
  PutBack(pending);
  return finished;
}

std::vector<LateFrees::Free> LateFrees::Withdraw(const ContextTags::Set& ending) {
  std::vector<Free> withdrawn, others;
  if (empty()) return withdrawn;
  const base::ClockLock looking(clock_, looking_);
  for (const Free& free : TakeAll()) {
    const bool ends = ending[free.place] || ending[free.allocation.place];
    (ends ? withdrawn : others).push_back(free);
  }
  PutBack(others);
  return withdrawn;
}

uint64_t LateFrees::BytesOf(const quota::Account* account) {
  const base::MutexLock lock(&mutex_);
  uint64_t bytes = 0;
  for (const Free& free : frees_) {
    if (free.allocation.account == account) bytes += free.allocation.bytes;
  }
  return bytes;
}

}  // namespace gpushare::books
