// SPDX-License-Identifier: Apache-2.0
#include "books/pool_frees.h"

#include <algorithm>
#include <new>

#include "base/clock_lock.h"
#include "books/context_of.h"
#include "books/relaxed.h"

namespace gpushare::books {

// The driver's id of the stream: handles are reused, and special handles stand for several streams.
uint64_t PoolFrees::NumberOf(CUstream stream) const {
  auto number = static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(stream));
  driver_.StreamGetId(stream, &number);
  return number;
}

bool PoolFrees::MayFollow(CUmemoryPool pool) const {
  for (const CUmemPool_attribute attribute : {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                              CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
    uint64_t on = 0;  // wide enough: the driver writes an int
    if (driver_.MemPoolGetAttribute(pool, attribute, &on) != CUDA_SUCCESS || on == 0) return false;
  }
  return true;
}

bool PoolFrees::Mark(Freed* freed, CUstream stream) {
  const ContextOf context(driver_, stream);
  freed->told = false;
  if (freed->event == nullptr) {
    freed->context = context.get();
    freed->place = tags_.Of(context.get());
    if (driver_.EventCreate(&freed->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      freed->event = nullptr;
      return false;
    }
  }
  return driver_.EventRecord(freed->event, stream) == CUDA_SUCCESS;
}

bool PoolFrees::IsOver(const Freed& freed) const {
  const CUresult result = driver_.EventQuery(freed.event);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result == CUDA_SUCCESS) driver_.EventDestroy(freed.event);  // else it ended with its context
  return true;
}

void PoolFrees::DropOver() {
  std::erase_if(freed_, [this](const Freed& freed) { return IsOver(freed); });
  count_.store(freed_.size());
}

void PoolFrees::Add(uint8_t pool, const quota::Account* account, uint64_t bytes, CUstream stream) {
  const Relaxed relaxed(driver_);
  const uint64_t number = NumberOf(stream);
  const base::ClockLock lock(clock_, busy_);
  auto at = std::find_if(freed_.begin(), freed_.end(), [&](const Freed& freed) {
    return freed.pool == pool && freed.account == account && freed.stream == number;
  });
  if (at == freed_.end()) {
    if (freed_.size() >= kMost) DropOver();
    if (freed_.size() >= kMost) return;
    try {
      at = freed_.insert(freed_.end(), {pool, account, number, 0, nullptr, nullptr, 0, false});
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  at->bytes += bytes;
  if (!Mark(&*at, stream)) {
    if (at->event != nullptr) driver_.EventDestroy(at->event);
    freed_.erase(at);
  }
  count_.store(freed_.size());
}

void PoolFrees::Take(uint8_t pool, CUmemoryPool handle, const quota::Account* account,
                     uint64_t bytes, CUstream stream, bool follows) {
  const Relaxed relaxed(driver_);
  const uint64_t number = NumberOf(stream);
  const base::ClockLock lock(clock_, busy_);
  const auto take = [&bytes](Freed& freed) {
    const uint64_t part = std::min(bytes, freed.bytes);
    freed.bytes -= part;
    bytes -= part;
  };
  for (Freed& freed : freed_) {
    if (freed.pool == pool && freed.account == account && freed.stream == number) take(freed);
  }
  if (bytes == 0 || !follows || !MayFollow(handle)) return;
  DropOver();
  for (Freed& freed : freed_) {
    if (freed.pool != pool || freed.account != account || freed.stream == number) continue;
    // Wait for all of them: the idle memory need not be contiguous.
    if (follow_ != nullptr) {
      follow_(stream, freed.event);
    } else {
      driver_.StreamWaitEvent(stream, freed.event, 0);
    }
    take(freed);
  }
}

void PoolFrees::TellAwaited(const quota::Account& account, LateFrees::Tell tell) {
  if (empty()) return;
  const base::ClockLock lock(clock_, busy_);
  for (Freed& freed : freed_) {
    if (freed.account != &account || freed.told) continue;
    freed.told = tell(freed.context, freed.event, account);
  }
}

void PoolFrees::Settle() {
  if (empty()) return;
  const Relaxed relaxed(driver_);
  const base::ClockLock lock(clock_, busy_);
  DropOver();
}

void PoolFrees::Forget(const ContextTags::Set& ending) {
  if (empty()) return;
  const Relaxed relaxed(driver_);
  const base::ClockLock lock(clock_, busy_);
  std::erase_if(freed_, [&](const Freed& freed) {
    if (!ending[freed.place]) return false;
    driver_.EventDestroy(freed.event);
    return true;
  });
  count_.store(freed_.size());
}

}  // namespace gpushare::books
