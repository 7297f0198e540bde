// SPDX-License-Identifier: Apache-2.0
// Multicast objects have no memory of their own. Memory that is bound to one stays charged until it is unbound or the object
// ends.
#include <new>
#include <utility>

#include "books/books.h"

namespace gpushare::books {

CUresult Books::MulticastCreate(CUmemGenericAllocationHandle* handle,
                                const CUmulticastObjectProp* properties) {
  const CUresult result = driver_.MulticastCreate(handle, properties);
  if (result != CUDA_SUCCESS) return result;
  try {
    Finish(physical_, physical_.Add(*handle, {}, 0));
  } catch (const std::bad_alloc&) {
    driver_.MemRelease(std::exchange(*handle, 0));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return result;
}

// A binding may wait for the object's other devices. So no lock is held, and the memory is marked as used before the call.
template <typename Call>
CUresult Books::Bind(uint64_t multicast, const SharedMemory::Place& place, uint64_t offset,
                     uint64_t bytes, const Call& call) {
  const CUresult result = call();
  if (!place) return result;
  try {
    if (result == CUDA_SUCCESS && physical_.Bind(multicast, place, offset, bytes)) return result;
  } catch (const std::bad_alloc&) {
    driver_.MulticastUnbind(multicast, physical_.DeviceOf(place), offset, bytes);
    Finish(physical_, physical_.Unuse(place));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Finish(physical_, physical_.Unuse(place));
  return result;
}

CUresult Books::MulticastBindMem(CUmemGenericAllocationHandle multicast, size_t offset,
                                 CUmemGenericAllocationHandle memory, size_t memory_offset,
                                 size_t bytes, unsigned long long flags) {
  return Bind(multicast, physical_.Use(memory), offset, bytes, [&] {
    return driver_.MulticastBindMem(multicast, offset, memory, memory_offset, bytes, flags);
  });
}

CUresult Books::MulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset,
                                  CUdeviceptr address, size_t bytes, unsigned long long flags) {
  const auto mapping = physical_.FindMapping(address);
  const auto place = mapping.has_value() ? physical_.Use(mapping->memory) : SharedMemory::Place{};
  return Bind(multicast, place, offset, bytes,
              [&] { return driver_.MulticastBindAddr(multicast, offset, address, bytes, flags); });
}

CUresult Books::MulticastUnbind(CUmemGenericAllocationHandle multicast, CUdevice device,
                                size_t offset, size_t bytes) {
  const auto binding = physical_.Unbind(multicast, device, offset, bytes);
  const CUresult result = driver_.MulticastUnbind(multicast, device, offset, bytes);
  if (!binding.has_value()) return result;
  if (result == CUDA_SUCCESS) {
    Finish(physical_, physical_.Unuse(binding->memory));
  } else {
    physical_.Rebind(multicast, *binding);
  }
  return result;
}

}  // namespace gpushare::books
