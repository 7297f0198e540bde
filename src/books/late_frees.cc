// SPDX-License-Identifier: Apache-2.0
#include "books/late_frees.h"

#include <utility>

#include "books/relaxed.h"

namespace gpushare::books {

bool LateFrees::Add(const quota::Allocation& allocation, CUstream stream) {
  const Relaxed relaxed(driver_);
  CUcontext context = nullptr;
  driver_.CtxGetCurrent(&context);
  Free free{allocation, nullptr, tags_.Of(context)};
  if (driver_.EventCreate(&free.event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
    if (driver_.EventRecord(free.event, stream) == CUDA_SUCCESS) {
      PutBack({free});
      return true;
    }
    driver_.EventDestroy(free.event);
  }
  // Without an event (the stream is of another context, say) the free is waited for.
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

std::vector<quota::Allocation> LateFrees::TakeFinished() {
  std::vector<quota::Allocation> finished;
  if (empty()) return finished;
  const Relaxed relaxed(driver_);
  std::vector<Free> pending;
  for (const Free& free : TakeAll()) {
    const CUresult result = driver_.EventQuery(free.event);
    // An event that is gone went with its context. A context that is lost still holds its memory.
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE) {
      if (result == CUDA_SUCCESS) driver_.EventDestroy(free.event);
      finished.push_back(free.allocation);
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
