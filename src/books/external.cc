// SPDX-License-Identifier: Apache-2.0
// External memory, which belongs to another interface. It is charged to the account that imports it, once for each handle that
// the driver gives, until the handle is destroyed and its last buffer and mapped array are gone, or its context ends.
#include <new>
#include <utility>

#include "books/books.h"

namespace gpushare::books {

Answer Books::ImportExternalMemory(const Payer& payer, CUexternalMemory* handle,
                                   const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* descriptor) {
  const auto import = [&] { return driver_.ImportExternalMemory(handle, descriptor); };
  if (handle == nullptr || descriptor == nullptr || descriptor->size == 0) return {import()};
  const uint64_t bytes = descriptor->size;
  const Answer answer = Charged(payer, bytes, import);
  if (!answer.ok()) return answer;
  const quota::Allocation charge{bytes, payer.account, quota::Kind::kExternal, payer.owner,
                                 TagOf(payer)};
  try {
    // False if the same memory was imported again.
    if (!external_.AddOrRetain(KeyOf(*handle), charge, 0)) Ended(charge);
  } catch (const std::bad_alloc&) {
    driver_.DestroyExternalMemory(std::exchange(*handle, nullptr));
    Ended(charge);
    return {CUDA_ERROR_OUT_OF_MEMORY};
  }
  return answer;
}

template <typename Call, typename Key, typename Undo>
CUresult Books::MapExternal(CUexternalMemory handle, const Call& call, const Key& key_of,
                            const Undo& undo) {
  const SharedMemory::Place place = external_.Use(KeyOf(handle));
  const CUresult result = call();
  if (!place) return result;
  if (result == CUDA_SUCCESS) {
    try {
      Map(external_, {key_of(), 1, place});
    } catch (const std::bad_alloc&) {
      undo();
      Finish(external_, external_.Unuse(place));
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  } else {
    Finish(external_, external_.Unuse(place));
  }
  return result;
}

CUresult Books::ExternalMemoryGetMappedBuffer(CUdeviceptr* pointer, CUexternalMemory handle,
                                              const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
  const CUresult result = MapExternal(
      handle, [&] { return driver_.ExternalMemoryGetMappedBuffer(pointer, handle, buffer); },
      [&] { return *pointer; }, [&] { driver_.MemFree(std::exchange(*pointer, 0)); });
  if (result == CUDA_SUCCESS) has_buffers_.store(true, std::memory_order_relaxed);
  return result;
}

CUresult Books::ExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray* array, CUexternalMemory handle,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* descriptor) {
  const CUresult result = MapExternal(
      handle,
      [&] { return driver_.ExternalMemoryGetMappedMipmappedArray(array, handle, descriptor); },
      [&] { return KeyOfMapped(*array); },
      [&] { driver_.MipmappedArrayDestroy(std::exchange(*array, nullptr)); });
  if (result == CUDA_SUCCESS) has_mapped_arrays_.store(true, std::memory_order_relaxed);
  return result;
}

CUresult Books::DestroyExternalMemory(CUexternalMemory handle) {
  const SharedMemory::Place place = external_.Leave(KeyOf(handle));
  const CUresult result = driver_.DestroyExternalMemory(handle);
  if (!place) return result;
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE) {
    Finish(external_, external_.Left(place));
  } else {
    external_.Stay(place);
  }
  return result;
}

// A buffer is freed by the same call as any pointer.
CUresult Books::FreeBuffer(CUdeviceptr pointer) {
  const SharedMemory::Mappings buffers = external_.TakeMappings(pointer, 1);
  const CUresult result = driver_.MemFree(pointer);
  for (const SharedMemory::Mapping& buffer : buffers) {
    if (result == CUDA_SUCCESS || !IsAllocated(pointer)) {
      Finish(external_, external_.Unuse(buffer.memory));
    } else {
      Map(external_, buffer);
    }
  }
  return result;
}

}  // namespace gpushare::books
