// SPDX-License-Identifier: Apache-2.0
// Virtual memory management. Physical memory is charged from its creation until its last handle reference and its last mapping
// are gone. Address ranges cost nothing.
#include <unistd.h>

#include <new>
#include <utility>
#include <vector>

#include "books/books.h"

namespace gpushare::books {

// When a multicast object ends, so do its bindings, which may be the last use of their memory.
void Books::Finish(SharedMemory& memory, const SharedMemory::Ended& ended) {
  if (!ended.has_value()) return;
  for (const SharedMemory::Binding& binding : ended->bindings) {
    Finish(memory, memory.Unuse(binding.memory));
  }
  if (ended->charge.account != nullptr) Ended(ended->charge);
}

// Whether a handle still exists that the driver refused to release: another thread may have been faster.
bool Books::Exists(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties;
  return driver_.MemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS;
}

Answer Books::MemCreate(const Payer& payer, CUmemGenericAllocationHandle* handle, size_t bytes,
                        const CUmemAllocationProp* properties, unsigned long long flags) {
  const auto create = [&] { return driver_.MemCreate(handle, bytes, properties, flags); };
  // Host memory is not charged.
  if (handle == nullptr || bytes == 0 || properties == nullptr ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return {create()};
  }
  const Answer answer = Charged(payer, bytes, create);
  if (!answer.ok()) return answer;
  const quota::Allocation charge{bytes, payer.account, quota::Kind::kHandle, payer.owner, 0};
  try {
    Finish(physical_, physical_.Add(*handle, charge, properties->location.id));
  } catch (const std::bad_alloc&) {
    driver_.MemRelease(std::exchange(*handle, 0));
    Ended(charge);
    return {CUDA_ERROR_OUT_OF_MEMORY};
  }
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
  SharedMemory::Place known;
  if (mapping.has_value()) known = physical_.Use(mapping->memory);
  const CUresult result = driver_.MemRetainAllocationHandle(handle, address);
  if (result == CUDA_SUCCESS && known) return Adopt(handle, known);
  Finish(physical_, physical_.Unuse(known));
  return result;
}

CUresult Books::Adopt(CUmemGenericAllocationHandle* handle, const SharedMemory::Place& known) {
  bool stands_for_it = false;
  CUresult result = CUDA_SUCCESS;
  try {
    stands_for_it = physical_.Adopt(*handle, known, DeviceOf(*handle));
  } catch (const std::bad_alloc&) {
    driver_.MemRelease(std::exchange(*handle, 0));
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!stands_for_it) Finish(physical_, physical_.Unuse(known));
  return result;
}

CUresult Books::MemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type,
                                           unsigned long long flags) {
  const SharedMemory::Place place = physical_.Export(handle);
  const CUresult result = driver_.MemExportToShareableHandle(shareable, handle, type, flags);
  if (!place) return result;
  try {
    // With other types of handles the memory ends with its last reference in this process.
    if (result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        descriptors_.Watch(*static_cast<int*>(shareable), place)) {
      if (descriptors_.many()) CreditClosed();
      return result;
    }
  } catch (const std::bad_alloc&) {
    close(std::exchange(*static_cast<int*>(shareable), -1));
    Finish(physical_, physical_.Unexport(place));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Finish(physical_, physical_.Unexport(place));
  return result;
}

void Books::CreditClosed() {
  std::vector<SharedMemory::Place> closed;
  try {
    closed = descriptors_.TakeClosed();
  } catch (const std::bad_alloc&) {
    return;  // the next call credits it
  }
  for (const SharedMemory::Place& place : closed) Finish(physical_, physical_.Unexport(place));
}

int Books::DeviceOf(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties{};
  const CUresult result = driver_.MemGetAllocationPropertiesFromHandle(&properties, handle);
  return result == CUDA_SUCCESS ? properties.location.id : 0;
}

Answer Books::MemMap(const Payer& payer, CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const SharedMemory::Place place = physical_.Use(handle);
  const auto map = [&] { return driver_.MemMap(address, bytes, offset, handle, flags); };
  Payer pays = payer;
  uint64_t end = 0, unpaid = 0;
  if (!__builtin_add_overflow(offset, bytes, &end)) {
    quota::Account* account = nullptr;
    unpaid = physical_.Unpaid(place, end, &account);
    if (account != nullptr) pays.account = account;  // the account that mapped a part before
  }
  const Answer answer = unpaid > 0 ? Charged(pays, unpaid, map) : Answer{map()};
  if (!place) return answer;
  if (!answer.ok()) {
    Finish(physical_, physical_.Unuse(place));
    return answer;
  }
  if (unpaid > 0) {
    // Another thread may have mapped it meanwhile.
    const uint64_t grown = physical_.Charge(place, end, pays.account, pays.owner);
    if (grown < unpaid) pays.account->Release(unpaid - grown);
  }
  try {
    Map(physical_, {address, bytes, place});
  } catch (const std::bad_alloc&) {
    driver_.MemUnmap(address, bytes);
    Finish(physical_, physical_.Unuse(place));
    return {CUDA_ERROR_OUT_OF_MEMORY};
  }
  return answer;
}

void Books::Map(SharedMemory& memory, const SharedMemory::Mapping& mapping) {
  if (const auto before = memory.Map(mapping)) Finish(memory, memory.Unuse(before->memory));
}

CUresult Books::MemUnmap(CUdeviceptr address, size_t bytes) {
  const SharedMemory::Mappings mappings = physical_.TakeMappings(address, bytes);
  const CUresult result = driver_.MemUnmap(address, bytes);
  for (const SharedMemory::Mapping& mapping : mappings) {
    CUmemGenericAllocationHandle held = 0;
    // The driver refused, so the mapping still exists unless another thread has unmapped it meanwhile.
    if (result != CUDA_SUCCESS &&
        driver_.MemRetainAllocationHandle(&held, reinterpret_cast<void*>(mapping.address)) ==
            CUDA_SUCCESS) {
      driver_.MemRelease(held);
      Map(physical_, mapping);
    } else {
      Finish(physical_, physical_.Unuse(mapping.memory));
    }
  }
  return result;
}

}  // namespace gpushare::books
