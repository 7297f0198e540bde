// SPDX-License-Identifier: Apache-2.0
// Physical memory imported by a shareable handle. Memory of this process is charged already. Memory of another process is
// charged here from its import on, since the process that created it may release it at any moment.
#include <bit>
#include <new>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "books/books.h"

namespace gpushare::books {

Answer Books::MemImportFromShareableHandle(PayerOn payer_on, CUmemGenericAllocationHandle* handle,
                                           void* shareable, CUmemAllocationHandleType type) {
  SharedMemory::Place known;
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    const auto descriptor = reinterpret_cast<intptr_t>(shareable);
    known = physical_.Use(descriptors_.Find(static_cast<int>(descriptor)));
  }
  const CUresult result = driver_.MemImportFromShareableHandle(handle, shareable, type);
  if (result != CUDA_SUCCESS) {
    Finish(physical_, physical_.Unuse(known));
    return {result};
  }
  const CUresult adopted = Adopt(handle, known);
  if (adopted != CUDA_SUCCESS || known) return {adopted};
  const SharedMemory::Place place = physical_.Use(*handle);
  Answer answer;
  try {
    answer = ChargeImport(payer_on, *handle, place);
  } catch (const std::bad_alloc&) {
    answer.result =
        CUDA_ERROR_OUT_OF_MEMORY;  // host memory ran out while finding the payer or waiting
  }
  if (!answer.ok()) MemRelease(std::exchange(*handle, 0));
  Finish(physical_, physical_.Unuse(place));
  return answer;
}

// Memory whose size the driver does not tell is charged when it is mapped.
Answer Books::ChargeImport(PayerOn payer_on, CUmemGenericAllocationHandle handle,
                           const SharedMemory::Place& place) {
  CUmemAllocationProp properties{};
  quota::Account* account = nullptr;
  if (physical_.Unpaid(place, 1, &account) == 0 ||  // imported before
      driver_.MemGetAllocationPropertiesFromHandle(&properties, handle) != CUDA_SUCCESS ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return {};
  }
  const uint64_t bytes = SizeOf(handle, properties);
  if (bytes == 0) return {};
  std::optional<Payer> payer = payer_on(properties.location.id);
  if (!payer.has_value()) return {CUDA_ERROR_OUT_OF_MEMORY};
  if (payer->account == nullptr) return {};
  const uint64_t unpaid = physical_.Unpaid(place, bytes, &account);
  if (account != nullptr) payer->account = account;  // the account that mapped a part meanwhile
  if (unpaid == 0) return {};
  const Answer answer = Charged(*payer, unpaid, [] { return CUDA_SUCCESS; });
  if (!answer.ok()) return answer;
  const uint64_t grown = physical_.Charge(place, bytes, payer->account, payer->owner);
  if (grown < unpaid) payer->account->Release(unpaid - grown);
  return answer;
}

// Finds the size by trial mappings: one that ends past the memory is refused, and one without access costs nothing. 0 if the
// driver does not reveal the size in this way.
//
// Unmapping may wait for the device, and for work that others launch meanwhile. So the trials lie side by side in unused
// addresses, and are unmapped together.
uint64_t Books::SizeOf(CUmemGenericAllocationHandle handle, const CUmemAllocationProp& properties) {
  size_t unit = 0, total = 0;
  if (driver_.MemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
          CUDA_SUCCESS ||
      unit == 0 || driver_.DeviceTotalMem(&total, properties.location.id) != CUDA_SUCCESS) {
    return 0;
  }
  const uint64_t most = total / unit;
  // The trials that double the size add up to less than twice the size. Each of the others is smaller than the size.
  uint64_t room = most * (2 + static_cast<unsigned>(std::bit_width(most)));
  CUdeviceptr range = 0;
  const auto reserve = [&] {
    return driver_.MemAddressReserve(&range, room * unit, 0, 0, 0) == CUDA_SUCCESS;
  };
  if (most == 0) return 0;
  if (!reserve()) {
    room = most;
    if (!reserve()) return 0;
  }
  absl::InlinedVector<uint64_t, 64> mapped;  // sizes of the mappings, in order of address
  uint64_t used = 0;
  const auto unmap = [&] {
    if (used == 0 || driver_.MemUnmap(range, used * unit) == CUDA_SUCCESS) {
      mapped.clear();
    } else {  // the driver unmaps only one mapping per call
      for (; !mapped.empty(); mapped.pop_back()) {
        used -= mapped.back();
        driver_.MemUnmap(range + used * unit, mapped.back() * unit);
      }
    }
    used = 0;
  };
  const auto fits = [&](uint64_t units) {
    if (units > room - used) unmap();
    if (driver_.MemMap(range + used * unit, units * unit, 0, handle, 0) != CUDA_SUCCESS) {
      return false;
    }
    mapped.push_back(units);
    used += units;
    return true;
  };
  uint64_t fitting = 0, past = 1;
  while (past <= most && fits(past)) fitting = std::exchange(past, 2 * past);
  while (fitting != 0 && past - fitting > 1) {
    const uint64_t middle = fitting + (past - fitting) / 2;
    (middle <= most && fits(middle) ? fitting : past) = middle;
  }
  unmap();
  driver_.MemAddressFree(range, room * unit);
  return fitting == most ? 0 : fitting * unit;  // a size of the whole device cannot be true
}

}  // namespace gpushare::books
