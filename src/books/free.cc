// SPDX-License-Identifier: Apache-2.0
// cuMemFree and cuMemFreeAsync, for pointers from any call. The order is that of quota/pointer_table.h: remove the entry, call
// the driver, credit.
#include <memory>
#include <new>
#include <utility>

#include "books/books.h"
#include "books/relaxed.h"

namespace gpushare::books {

CUresult Books::MemFree(CUdeviceptr pointer) {
  quota::Allocation allocation;
  const bool ours = pointers_.Take(pointer, &allocation);
  if (!ours && free_elsewhere_ != nullptr) {
    if (const auto freed = free_elsewhere_(pointer, nullptr)) return *freed;
  }
  if (!ours && has_buffers_.load(std::memory_order_relaxed)) return FreeBuffer(pointer);
  const auto call = [&] { return driver_.MemFree(pointer); };
  return ours ? FreeBy(pointer, allocation, call) : call();
}

CUresult Books::FreeTaken(CUdeviceptr pointer, const quota::Allocation& allocation,
                          absl::FunctionRef<CUresult()> free) {
  return FreeBy(pointer, allocation, free);
}

template <typename Call>
CUresult Books::FreeBy(CUdeviceptr pointer, const quota::Allocation& allocation, const Call& call) {
  CUresult result;
  try {
    result = call();
  } catch (...) {  // the thread is cancelled while the driver waits for kernels
    NotFreed(pointer, allocation);
    throw;
  }
  if (result == CUDA_SUCCESS) [[likely]] {
    Awaited awaited;
    Ended(allocation, &awaited);
    if (awaited.has_value()) [[unlikely]]
      GiveUpIdle(allocation.account);
  } else {
    NotFreed(pointer, allocation);
  }
  return result;
}

CUresult Books::MemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  quota::Allocation allocation;
  const bool ours = pointers_.Take(pointer, &allocation);
  if (!ours && free_elsewhere_ != nullptr) {
    if (const auto freed = free_elsewhere_(pointer, &stream)) return *freed;
  }
  const CUresult result = driver_.MemFreeAsync(pointer, stream);
  if (!ours) return result;
  Awaited awaited;
  if (result != CUDA_SUCCESS) {
    NotFreed(pointer, allocation);
  } else if (allocation.kind == quota::Kind::kPool) {
    // Must come before Ended(), which makes the memory idle for other threads.
    if (MayRunShort(allocation) && !IsCapturing(stream)) [[unlikely]] {
      pool_frees_.Add(allocation.place, allocation.account, allocation.bytes, stream);
    }
    Ended(allocation, &awaited);
  } else if (!late_.Add({.allocation = allocation, .memory = {}}, stream, &awaited)) {
    Ended(allocation);
  }
  if (awaited.has_value()) [[unlikely]]
    TellWaiters(allocation.account, *std::move(awaited), stream);
  return result;
}

// If the memory is free at once, the freeing thread makes room itself. If the stream still has to reach the free, a host
// function after it tells the waiting requests. Without host memory, or while the stream captures, the waiting requests find
// out at their next look.
void Books::TellWaiters(const quota::Account* account, quota::Waiters waiters, CUstream stream) {
  const Relaxed relaxed(driver_);
  if (IsCapturing(stream)) return;
  if (driver_.StreamQuery(stream) == CUDA_SUCCESS) return GiveUpIdle(account);
  const auto put = [this](CUstream into, CUhostFn call, void* argument) {
    return tell_ != nullptr ? tell_(into, call, argument)
                            : driver_.LaunchHostFunc(into, call, argument);
  };
  static_cast<void>(TellIn(stream, std::move(waiters), put));
}

bool Books::TellIn(CUstream stream, quota::Waiters to_tell, Put put) {
  try {
    auto waiters = std::make_unique<quota::Waiters>(std::move(to_tell));
    const CUhostFn call = [](void* argument) {
      const std::unique_ptr<quota::Waiters> told(static_cast<quota::Waiters*>(argument));
      told->LookAgain();
    };
    if (put(stream, call, waiters.get()) != CUDA_SUCCESS) return false;
    static_cast<void>(waiters.release());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Uses a new stream with no other work: the program's stream may be gone, or may have got much more work since. The driver keeps
// the destroyed stream until its work is done.
bool Books::TellBehind(CUcontext context, CUevent event, const quota::Account& account) {
  Awaited waiters = AwaitedBy(account);
  if (!waiters.has_value() || context == nullptr ||
      driver_.CtxPushCurrent(context) != CUDA_SUCCESS) {
    return false;
  }
  CUstream stream = nullptr;
  bool told = false;
  if (driver_.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS) {
    const auto put = [this](CUstream into, CUhostFn call, void* argument) {
      return driver_.LaunchHostFunc(into, call, argument);
    };
    told = driver_.StreamWaitEvent(stream, event, 0) == CUDA_SUCCESS &&
           TellIn(stream, *std::move(waiters), put);
    driver_.StreamDestroy(stream);
  }
  CUcontext popped = nullptr;
  driver_.CtxPopCurrent(&popped);
  return told;
}

void Books::TellOfEarlierFrees(const quota::Account& account) {
  const Relaxed relaxed(driver_);
  const auto tell = [this](CUcontext context, CUevent event, const quota::Account& awaited) {
    return TellBehind(context, event, awaited);
  };
  late_.TellAwaited(tell);
  pool_frees_.TellAwaited(account, tell);
}

std::vector<quota::Allocation> Books::TakeLateOf(const quota::Account* account) {
  std::vector<quota::Allocation> taken;
  for (const LateFrees::Free& free : late_.TakeOf(account)) taken.push_back(free.allocation);
  return taken;
}

bool Books::IsAllocated(CUdeviceptr pointer) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const CUresult found = driver_.MemGetAddressRange(&base, &bytes, pointer);
  return found != CUDA_ERROR_INVALID_VALUE && found != CUDA_ERROR_NOT_FOUND;
}

void Books::NotFreed(CUdeviceptr pointer, const quota::Allocation& allocation) {
  // The memory is gone if another thread freed the same pointer: it found no entry, since this thread had taken it, and was
  // faster in the driver.
  if (IsAllocated(pointer)) {
    Restore(pointers_, pointer, allocation);
  } else {
    Ended(allocation);
  }
}

}  // namespace gpushare::books
