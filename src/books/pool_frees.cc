// SPDX-License-Identifier: Apache-2.0
#include "books/pool_frees.h"

#include <algorithm>
#include <array>
#include <new>

#include "base/clock_lock.h"
#include "base/no_cancel.h"
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

// Calls on streams are made without the lock: where the stream's queue is full, they wait for whatever the stream waits for.
void PoolFrees::Add(uint8_t pool, const quota::Account* account, uint64_t bytes, CUstream stream) {
  const Relaxed relaxed(driver_);
  Freed freed = {pool, account, NumberOf(stream), bytes, nullptr, nullptr, 0, false};
  const auto find = [&] {
    return std::find_if(freed_.begin(), freed_.end(), [&](const Freed& other) {
      return other.pool == pool && other.account == account && other.stream == freed.stream;
    });
  };
  {
    const base::ClockLock lock(clock_, busy_);
    if (find() == freed_.end()) {
      if (freed_.size() >= kMost) DropOver();
      if (freed_.size() >= kMost) return;
    }
  }
  // The stream's earlier frees stay in the list meanwhile.
  if (!Mark(&freed, stream)) {
    if (freed.event != nullptr) driver_.EventDestroy(freed.event);
    return;
  }
  const base::ClockLock lock(clock_, busy_);
  if (const auto at = find(); at != freed_.end()) {
    freed.bytes += at->bytes;
    driver_.EventDestroy(at->event);
    *at = freed;
  } else {
    Keep(freed);
  }
  count_.store(freed_.size());
}

void PoolFrees::Keep(const Freed& freed) {
  try {
    freed_.push_back(freed);
  } catch (const std::bad_alloc&) {
    driver_.EventDestroy(freed.event);
  }
}

void PoolFrees::Take(uint8_t pool, CUmemoryPool handle, const quota::Account* account,
                     uint64_t bytes, CUstream stream, bool follows) {
  const Relaxed relaxed(driver_);
  const uint64_t number = NumberOf(stream);
  const auto take = [&bytes](Freed& freed) {
    const uint64_t part = std::min(bytes, freed.bytes);
    freed.bytes -= part;
    bytes -= part;
  };
  std::array<Freed, kMost> followed;
  size_t count = 0;
  {
    const base::ClockLock lock(clock_, busy_);
    for (Freed& freed : freed_) {
      if (freed.pool == pool && freed.account == account && freed.stream == number) take(freed);
    }
    if (bytes == 0 || !follows || !MayFollow(handle)) return;
    DropOver();
    // Wait for all of them: the idle memory need not be contiguous.
    const auto out = [&](Freed& freed) {
      if (freed.pool != pool || freed.account != account || freed.stream == number) return false;
      if (count == kMost) return false;
      take(freed);
      followed[count++] = freed;
      return true;
    };
    std::erase_if(freed_, out);
    if (count == 0) return;
    following_.fetch_add(1);
  }
  const base::NoCancel whole;  // the entries are put back whatever happens
  for (size_t i = 0; i < count; ++i) {
    try {
      if (follow_ != nullptr) {
        follow_(stream, followed[i].event);
      } else {
        driver_.StreamWaitEvent(stream, followed[i].event, 0);
      }
    } catch (const std::bad_alloc&) {
      // The pool may grow instead.
    }
  }
  {
    const base::ClockLock lock(clock_, busy_);
    for (size_t i = 0; i < count; ++i) Keep(followed[i]);
    count_.store(freed_.size());
  }
  following_.fetch_sub(1);
  clock_.Wake(following_, 1 << 20);
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
  for (;;) {
    uint32_t following = following_.load();
    if (following == 0) {
      if (empty()) return;
      const Relaxed relaxed(driver_);
      const base::ClockLock lock(clock_, busy_);
      following = following_.load();
      if (following == 0) {
        std::erase_if(freed_, [&](const Freed& freed) {
          if (!ending[freed.place]) return false;
          driver_.EventDestroy(freed.event);
          return true;
        });
        count_.store(freed_.size());
        return;
      }
    }
    // Streams are being made to wait for events, which may be of these contexts.
    clock_.Wait(following_, following, kNever, Nanos(0));
  }
}

}  // namespace gpushare::books
