// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: physical memory is charged from its creation until its last handle reference and its
// last mapping are gone. Addresses cost nothing.
#include <vector>

#include "books/books.h"

namespace gpushare::books {
namespace {

uint64_t KeyOf(const void* address) { return reinterpret_cast<uint64_t>(address); }

}  // namespace

// What is bound to a multicast object goes with it, and may be the last use.
void Books::Finish(SharedMemory& memory, const SharedMemory::Ended& ended) {
  if (!ended.has_value()) return;
  for (const SharedMemory::Binding& binding : ended->bindings) {
    Finish(memory, memory.Unuse(binding.memory));
  }
  if (ended->charge.account != nullptr) Ended(ended->charge);
}

// Asked of a handle that the driver would not release: another thread may have been faster.
bool Books::Exists(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties;
  return driver_.MemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS;
}

Answer Books::MemCreate(const Payer& payer, CUmemGenericAllocationHandle* handle, size_t bytes,
                        const CUmemAllocationProp* properties, unsigned long long flags) {
  const auto create = [&] { return driver_.MemCreate(handle, bytes, properties, flags); };
  // Memory of the host is not charged.
  if (handle == nullptr || bytes == 0 || properties == nullptr ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return {create()};
  }
  Answer answer = Reserve(payer, bytes);
  if (!answer.ok()) return answer;
  answer.result = create();
  if (!answer.ok()) {
    payer.account->Cancel(bytes);
    return answer;
  }
  payer.account->Commit(bytes);
  const quota::Allocation charge{bytes, payer.account, quota::Kind::kHandle, payer.owner, 0};
  Finish(physical_, physical_.Add(*handle, charge, properties->location.id));
  return answer;
}

CUresult Books::MemRelease(CUmemGenericAllocationHandle handle) {
  const SharedMemory::Place place = physical_.Leave(handle);
  const CUresult result = driver_.MemRelease(handle);
  if (!place) return result;
  if (result == CUDA_SUCCESS || (result == CUDA_ERROR_INVALID_VALUE && !Exists(handle))) {
    Finish(physical_, physical_.Left(place));
  } else {
    physical_.Stay(place);
  }
  return result;
}

CUresult Books::MemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const auto mapping = physical_.FindMapping(KeyOf(address));
  SharedMemory::Place place;
  if (mapping.has_value()) place = physical_.Retain(mapping->memory.handle);
  const CUresult result = driver_.MemRetainAllocationHandle(handle, address);
  if (!place || (result == CUDA_SUCCESS && *handle == place.handle)) return result;
  Finish(physical_, physical_.Left(physical_.Leave(place.handle)));
  return result;
}

// Memory of this process or of another tenant's is charged already.
CUresult Books::MemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                             CUmemAllocationHandleType type) {
  const CUresult result = driver_.MemImportFromShareableHandle(handle, shareable, type);
  if (result == CUDA_SUCCESS) physical_.AddOrRetain(*handle, {}, DeviceOf(*handle));
  return result;
}

int Books::DeviceOf(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties{};
  const CUresult result = driver_.MemGetAllocationPropertiesFromHandle(&properties, handle);
  return result == CUDA_SUCCESS ? properties.location.id : 0;
}

CUresult Books::MemMap(CUdeviceptr address, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const SharedMemory::Place place = physical_.Use(handle);
  const CUresult result = driver_.MemMap(address, bytes, offset, handle, flags);
  if (!place) return result;
  if (result == CUDA_SUCCESS) {
    physical_.Map({address, bytes, place});
  } else {
    Finish(physical_, physical_.Unuse(place));
  }
  return result;
}

CUresult Books::MemUnmap(CUdeviceptr address, size_t bytes) {
  const std::vector<SharedMemory::Mapping> mappings = physical_.TakeMappings(address, bytes);
  const CUresult result = driver_.MemUnmap(address, bytes);
  for (const SharedMemory::Mapping& mapping : mappings) {
    CUmemGenericAllocationHandle held = 0;
    // Refused, and still there unless another thread unmapped it meanwhile.
    if (result != CUDA_SUCCESS &&
        driver_.MemRetainAllocationHandle(&held, reinterpret_cast<void*>(mapping.address)) ==
            CUDA_SUCCESS) {
      driver_.MemRelease(held);
      physical_.Map(mapping);
    } else {
      Finish(physical_, physical_.Unuse(mapping.memory));
    }
  }
  return result;
}

}  // namespace gpushare::books
