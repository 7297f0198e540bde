// SPDX-License-Identifier: Apache-2.0
// cuMemFree and cuMemFreeAsync: of every pointer, whichever call it came from. The order is that of
// quota/pointer_table.h: out of the table, the driver, the credit.
#include "books/books.h"

namespace gpushare::books {

CUresult Books::MemFree(CUdeviceptr pointer) {
  quota::Allocation allocation;
  const bool ours = pointers_.Take(pointer, &allocation);
  if (!ours && has_buffers_.load(std::memory_order_relaxed)) return FreeBuffer(pointer);
  CUresult result;
  try {
    result = driver_.MemFree(pointer);
  } catch (...) {  // cancelled in the driver, where it waited for kernels
    if (ours) NotFreed(pointer, allocation);
    throw;
  }
  if (!ours) return result;
  if (result == CUDA_SUCCESS) [[likely]] {
    Ended(allocation);
  } else {
    NotFreed(pointer, allocation);
  }
  return result;
}

CUresult Books::MemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  quota::Allocation allocation;
  const bool ours = pointers_.Take(pointer, &allocation);
  const CUresult result = driver_.MemFreeAsync(pointer, stream);
  if (!ours) return result;
  if (result != CUDA_SUCCESS) {
    NotFreed(pointer, allocation);
  } else if (allocation.kind == quota::Kind::kPool ||
             !late_.Add({.allocation = allocation, .memory = {}}, stream)) {
    Ended(allocation);
  }
  return result;
}

bool Books::IsAllocated(CUdeviceptr pointer) {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const CUresult found = driver_.MemGetAddressRange(&base, &bytes, pointer);
  return found != CUDA_ERROR_INVALID_VALUE && found != CUDA_ERROR_NOT_FOUND;
}

void Books::NotFreed(CUdeviceptr pointer, const quota::Allocation& allocation) {
  // Gone it is when another thread freed the same pointer, found no entry, since this one had taken it, and
  // was faster in the driver.
  if (IsAllocated(pointer)) {
    Restore(pointers_, pointer, allocation);
  } else {
    Ended(allocation);
  }
}

}  // namespace gpushare::books
