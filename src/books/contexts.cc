// SPDX-License-Identifier: Apache-2.0
// The end of a context: by its destruction or, for a device's primary context, by its last release or a reset.
#include <utility>

#include "base/clock_lock.h"
#include "books/books.h"

namespace gpushare::books {

bool Books::IsActive(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return driver_.DevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

void Books::Ended(const ContextTags::Set& tags, const LateFrees::List& late) {
  // Pool memory does not belong to a context.
  const auto held = [&](const quota::Allocation& one) {
    return one.kind != quota::Kind::kPool && tags[one.place];
  };
  for (quota::PointerTable* table : {&pointers_, &arrays_}) {
    table->TakeWhere(held, [this](uint64_t, const quota::Allocation& one) { Ended(one); });
  }
  while (const SharedMemory::Ended one = external_.TakeOne(held)) Ended(one->charge);
  for (const SparseArrays::Region& region : sparse_.TakeOf(tags)) {
    Finish(physical_, physical_.Unuse(region.memory));
  }
  for (const LateFrees::Free& free : late) {
    if (!tags[free.place]) driver_.EventDestroy(free.event);
    Ended(free);
  }
}

// `ended` tells after a successful call whether the context has ended.
template <typename Call>
CUresult Books::EndContext(const ContextTags::Set& tags, const Call& call,
                           const std::function<bool()>& ended) {
  pool_frees_.Forget(tags);
  LateFrees::List late = late_.Withdraw(tags);
  const CUresult result = call();
  if (result != CUDA_SUCCESS || !ended()) {
    late_.PutBack(std::move(late));
    tags_.Restore(tags);
    return result;
  }
  Ended(tags, late);
  tags_.Reuse(tags, nullptr);
  return result;
}

// Tags are retired before a context may end, so that a new context with the same handle is not mistaken for it.
CUresult Books::CtxDestroy(CUcontext context) {
  return EndContext(
      tags_.Retire(context), [&] { return driver_.CtxDestroy(context); }, [] { return true; });
}

CUresult Books::CtxDetach(CUcontext context) {
  return EndContext(
      tags_.Retire(context), [&] { return driver_.CtxDetach(context); },
      [&] {
        unsigned version = 0;
        const CUresult result = driver_.CtxGetApiVersion(context, &version);
        return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
      });
}

CUcontext Books::PrimaryContext(CUdevice device) {
  CUcontext context = nullptr;
  if (IsActive(device) && driver_.DevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS) {
    driver_.DevicePrimaryCtxRelease(device);
  }
  return context;
}

// A per-device lock keeps the lives of a primary context in the same order here as in the driver: exactly one release sees the
// end, and the next life begins after it.
CUresult Books::DevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const base::ClockLock lock(clock_, LifeOf(device));
  return driver_.DevicePrimaryCtxRetain(context, device);
}

CUresult Books::DevicePrimaryCtxRelease(CUdevice device) {
  const base::ClockLock lock(clock_, LifeOf(device));
  return EndContext(
      tags_.Find(PrimaryContext(device)), [&] { return driver_.DevicePrimaryCtxRelease(device); },
      [&] { return !IsActive(device); });
}

CUresult Books::DevicePrimaryCtxReset(CUdevice device) {
  const base::ClockLock lock(clock_, LifeOf(device));
  return EndContext(
      tags_.Find(PrimaryContext(device)), [&] { return driver_.DevicePrimaryCtxReset(device); },
      [&] {
        ResetPools(device);
        return true;
      });
}

CUresult Books::CtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  const CUresult result = driver_.CtxFromGreenCtx(context, green);
  CUdevice device = 0;
  CUcontext popped = nullptr;
  if (result != CUDA_SUCCESS || driver_.CtxPushCurrent(*context) != CUDA_SUCCESS) return result;
  const bool found = driver_.CtxGetDevice(&device) == CUDA_SUCCESS;
  driver_.CtxPopCurrent(&popped);
  if (!found) return result;
  const base::ClockLock lock(clock_, LifeOf(device));
  CUcontext const primary = PrimaryContext(device);
  if (primary != *context) tags_.Adopt(*context, primary);
  return result;
}

// The green context may hold the last reference to the primary context.
CUresult Books::GreenCtxDestroy(CUgreenCtx green) {
  CUcontext context = nullptr, popped = nullptr;
  CUdevice device = 0;
  if (driver_.CtxFromGreenCtx(&context, green) != CUDA_SUCCESS ||
      driver_.CtxPushCurrent(context) != CUDA_SUCCESS) {
    return driver_.GreenCtxDestroy(green);
  }
  const bool found = driver_.CtxGetDevice(&device) == CUDA_SUCCESS;
  driver_.CtxPopCurrent(&popped);
  if (!found) return driver_.GreenCtxDestroy(green);
  const base::ClockLock lock(clock_, LifeOf(device));
  CUcontext const primary = PrimaryContext(device);
  const ContextTags::Set tags = tags_.Find(primary);  // includes those of the green context
  pool_frees_.Forget(tags);
  LateFrees::List late = late_.Withdraw(tags);
  const CUresult result = driver_.GreenCtxDestroy(green);
  if (result == CUDA_SUCCESS && !IsActive(device)) {
    Ended(tags, late);
    tags_.Reuse(tags, nullptr);
    return result;
  }
  late_.PutBack(std::move(late));
  if (result == CUDA_SUCCESS && context != primary) {
    // The handle may be reused for another context. What the green context holds belongs to the primary context.
    tags_.Reuse(tags_.Retire(context), primary);
  }
  return result;
}

}  // namespace gpushare::books
