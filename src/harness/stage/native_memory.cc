// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/native_memory.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace gpushare::harness {
namespace {

constexpr uint64_t kMappingStep = 2u << 20;

absl::Status Check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return absl::ResourceExhaustedError(call);
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return absl::InternalError(absl::StrCat(call, ": ", name == nullptr ? "an error" : name));
}

uint64_t Mapped(uint64_t bytes) { return (bytes + kMappingStep - 1) / kMappingStep * kMappingStep; }

CUmemAllocationProp OnFirstDevice() {
  CUmemAllocationProp where = {};
  where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  where.location.id = 0;
  return where;
}

}  // namespace

absl::StatusOr<uint64_t> NativeMemory::Map(uint64_t bytes) {
  const size_t size = Mapped(bytes);
  const CUmemAllocationProp where = OnFirstDevice();
  CUmemGenericAllocationHandle handle = 0;
  GPUSHARE_RETURN_IF_ERROR(Check(cuMemCreate(&handle, size, &where, 0), "cuMemCreate"));
  CUdeviceptr pointer = 0;
  absl::Status mapped = Check(cuMemAddressReserve(&pointer, size, 0, 0, 0), "cuMemAddressReserve");
  if (mapped.ok()) mapped = Check(cuMemMap(pointer, size, 0, handle, 0), "cuMemMap");
  // The mapping keeps the memory; it goes with cuMemUnmap.
  const absl::Status released = Check(cuMemRelease(handle), "cuMemRelease");
  GPUSHARE_RETURN_IF_ERROR(mapped);
  GPUSHARE_RETURN_IF_ERROR(released);
  const CUmemAccessDesc access = {where.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  GPUSHARE_RETURN_IF_ERROR(Check(cuMemSetAccess(pointer, size, &access, 1), "cuMemSetAccess"));
  return pointer;
}

absl::Status NativeMemory::Unmap(uint64_t pointer, uint64_t bytes) {
  const size_t size = Mapped(bytes);
  GPUSHARE_RETURN_IF_ERROR(Check(cuMemUnmap(pointer, size), "cuMemUnmap"));
  return Check(cuMemAddressFree(pointer, size), "cuMemAddressFree");
}

absl::StatusOr<uint64_t> NativeMemory::Allocate(MemoryFamily family, uint64_t bytes) {
  GPUSHARE_RETURN_IF_ERROR(Check(cuCtxSetCurrent(context_), "cuCtxSetCurrent"));
  CUdeviceptr pointer = 0;
  switch (family) {
    case MemoryFamily::kMalloc:
      GPUSHARE_RETURN_IF_ERROR(Check(cuMemAlloc(&pointer, bytes), "cuMemAlloc"));
      break;
    case MemoryFamily::kAsync:
      GPUSHARE_RETURN_IF_ERROR(Check(cuMemAllocAsync(&pointer, bytes, stream_), "cuMemAllocAsync"));
      break;
    case MemoryFamily::kManaged:
      GPUSHARE_RETURN_IF_ERROR(
          Check(cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged"));
      break;
    case MemoryFamily::kVirtual:
      return Map(bytes);
  }
  return pointer;
}

absl::Status NativeMemory::Free(MemoryFamily family, uint64_t pointer, uint64_t bytes) {
  GPUSHARE_RETURN_IF_ERROR(Check(cuCtxSetCurrent(context_), "cuCtxSetCurrent"));
  switch (family) {
    case MemoryFamily::kMalloc:
    case MemoryFamily::kManaged:
      return Check(cuMemFree(pointer), "cuMemFree");
    case MemoryFamily::kAsync:
      GPUSHARE_RETURN_IF_ERROR(Check(cuMemFreeAsync(pointer, stream_), "cuMemFreeAsync"));
      return Check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    case MemoryFamily::kVirtual:
      return Unmap(pointer, bytes);
  }
  return absl::OkStatus();
}

}  // namespace gpushare::harness
