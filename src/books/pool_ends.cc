// SPDX-License-Identifier: Apache-2.0
// The life of pools: creation, trims, and the end by destruction or with a reset of their device.
#include <mutex>
#include <new>
#include <utility>

#include "books/books.h"

namespace gpushare::books {

// Managed memory may be on any device, wherever it prefers to be, so without a preferred device it is charged to the stream's.
int Books::PlaceOf(const CUmemLocation& location, CUmemAllocationType type) {
  constexpr auto kManaged =
      static_cast<CUmemAllocationType>(2);  // the headers of CUDA 12 have no name for it
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return location.id;
  return type == kManaged ? kNoDevice : kHost;
}

// The pool is recorded before the program gets it. Without its device it would be charged to the wrong share, or, for a pool in
// host memory, to any share at all.
CUresult Books::MemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult result = driver_.MemPoolCreate(pool, properties);
  if (result != CUDA_SUCCESS) return result;
  const int place = PlaceOf(properties->location, properties->allocType);
  if (place == kNoDevice) return result;
  try {
    const std::lock_guard lock(made_lock_);
    made_pools_[*pool] = place;
  } catch (const std::bad_alloc&) {
    driver_.MemPoolDestroy(*pool);
    *pool = nullptr;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  has_made_pools_.store(true);
  return result;
}

void Books::MemPoolIsAt(CUmemoryPool pool, const CUmemLocation& location,
                        CUmemAllocationType type) {
  if (pool == nullptr || PlaceOf(location, type) != kHost) return;
  try {
    const std::lock_guard lock(made_lock_);
    made_pools_.emplace(pool, kHost);
  } catch (const std::bad_alloc&) {
    return;  // what comes from it will be charged, though it is the host's
  }
  has_made_pools_.store(true);
}

int Books::PoolDevice(CUmemoryPool pool) {
  const uint8_t number = pools_.Find(pool);
  if (number != 0 && pools_.DeviceOf(number) >= 0) return pools_.DeviceOf(number);
  {
    const std::lock_guard lock(made_lock_);
    if (const auto at = made_pools_.find(pool); at != made_pools_.end()) return at->second;
  }
  int devices = 0;
  driver_.DeviceGetCount(&devices);
  for (CUdevice device = 0; pool != nullptr && device < devices; ++device) {
    CUmemoryPool standard = nullptr, current = nullptr;
    driver_.DeviceGetDefaultMemPool(&standard, device);
    driver_.DeviceGetMemPool(&current, device);
    if (standard == pool || current == pool) return device;
  }
  return kNoDevice;
}

bool Books::IsDestroyed(CUmemoryPool pool) {
  const uint8_t number = pools_.Find(pool);
  return number != 0 && pools_.Retired(number);
}

CUresult Books::MemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  if (IsDestroyed(pool)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver_.MemPoolTrimTo(pool, keep);
  SettlePools(nullptr);
  return result;
}

// The driver's pool is kept until it is empty, since only an existing pool tells what it holds. To the program it is destroyed.
CUresult Books::MemPoolDestroy(CUmemoryPool pool) {
  if (IsDestroyed(pool)) return CUDA_ERROR_INVALID_VALUE;
  int devices = 0;
  driver_.DeviceGetCount(&devices);
  for (CUdevice device = 0; device < devices; ++device) {
    CUmemoryPool standard = nullptr, current = nullptr;
    driver_.DeviceGetDefaultMemPool(&standard, device);
    if (standard == pool) return driver_.MemPoolDestroy(pool);  // the driver refuses this
    driver_.DeviceGetMemPool(&current, device);
    if (pool != nullptr && current == pool) driver_.DeviceSetMemPool(device, standard);
  }
  const uint8_t number = pools_.Find(pool);
  // Must come before the driver can reuse the handle.
  made_lock_.lock();
  auto made = made_pools_.extract(pool);
  made_lock_.unlock();
  if (number == 0) {
    const CUresult result = driver_.MemPoolDestroy(pool);
    if (result != CUDA_SUCCESS && !made.empty()) {
      const std::lock_guard lock(made_lock_);
      made_pools_.insert(std::move(made));
    }
    return result;
  }
  pools_.Retire(number);
  SettlePools(nullptr);
  return CUDA_SUCCESS;
}

// A reset of a device ends its pools with all allocations from them, or nothing at all if the primary context is not active.
// Allocations that the driver still knows remain, and remain charged.
void Books::ResetPools(CUdevice device) {
  for (unsigned i = 1; i <= pools_.count(); ++i) {
    const auto number = static_cast<uint8_t>(i);
    const int of = pools_.DeviceOf(number);
    CUmemoryPool const pool = pools_.HandleOf(number);
    if (pool == nullptr || (of >= 0 && of != device)) continue;
    uint64_t reserved = 0;
    const CUresult known =
        driver_.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    const auto held = [&](const quota::Allocation& one) {
      return one.kind == quota::Kind::kPool && one.place == number;
    };
    for (const auto& [pointer, allocation] : pointers_.TakeWhere(held)) {
      CUmemoryPool its = nullptr;
      const CUresult found =
          driver_.PointerGetAttribute(&its, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer);
      if (known == CUDA_SUCCESS && found == CUDA_SUCCESS && its == pool) {
        Restore(pointers_, pointer, allocation);
      } else {
        Ended(allocation);  // the memory is idle if the pool still exists
      }
    }
    if (known == CUDA_ERROR_INVALID_VALUE || known == CUDA_ERROR_INVALID_HANDLE) {
      Credit(pools_.Drop(number));
      const std::lock_guard lock(made_lock_);
      made_pools_.erase(pool);
    } else {
      Reconcile(pools_, number, nullptr);
    }
  }
  graph_trims_.fetch_add(1);
  SettleGraphs();
}

}  // namespace gpushare::books
