// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/sparse_driver.h"

#include <array>
#include <cstdint>
#include <mutex>

namespace gpushare::books {
namespace {

// Allocates no host memory, since the tests make the books' allocations fail.
struct SparseArray {
  uint64_t handle = 0;
  CUdeviceptr address = 0;  // 0: no memory is mapped into the array
  uint64_t bytes = 0;
};
const driver::Driver* family_driver = nullptr;
std::mutex sparse_mutex;
std::array<SparseArray, 1024> sparse_arrays;
uint64_t sparse_last = uint64_t{0x5a} << 48;

SparseArray* FindSparse(CUarray array) {
  for (SparseArray& one : sparse_arrays) {
    if (array != nullptr && one.handle == reinterpret_cast<uint64_t>(array)) return &one;
  }
  return nullptr;
}

CUresult UnmapPart(SparseArray* array) {
  if (array->address == 0) return CUDA_SUCCESS;
  auto* const give_addresses = reinterpret_cast<CUresult (*)(CUdeviceptr, size_t)>(
      FamilyDriver().Symbol("cuMemAddressFree"));
  const CUresult result = FamilyDriver().table().MemUnmap(array->address, array->bytes);
  if (result != CUDA_SUCCESS) return result;
  give_addresses(array->address, array->bytes);
  array->address = 0;
  return result;
}

CUresult CreateSparse(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  if (shape == nullptr || (shape->Flags & kSparseArray) == 0) {
    return FamilyDriver().table().Array3DCreate(array, shape);
  }
  const std::lock_guard lock(sparse_mutex);
  for (SparseArray& one : sparse_arrays) {
    if (one.handle != 0) continue;
    one = {++sparse_last, 0, 0};
    *array = reinterpret_cast<CUarray>(one.handle);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult DestroySparse(CUarray array) {
  {
    const std::lock_guard lock(sparse_mutex);
    if (SparseArray* const one = FindSparse(array)) {
      const CUresult result = UnmapPart(one);
      if (result == CUDA_SUCCESS) one->handle = 0;
      return result;
    }
  }
  return FamilyDriver().table().ArrayDestroy(array);
}

// Maps at once; a real driver maps in the order of the stream.
CUresult MapPart(CUarrayMapInfo* list, unsigned count, CUstream stream) {
  if (list == nullptr || count != 1) return CUDA_ERROR_INVALID_VALUE;
  const driver::Table& cu = FamilyDriver().table();
  const CUresult waited = cu.StreamSynchronize(stream);
  if (waited != CUDA_SUCCESS) return waited;
  const std::lock_guard lock(sparse_mutex);
  SparseArray* const array = FindSparse(list->resource.array);
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = UnmapPart(array);
  if (result != CUDA_SUCCESS || list->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
    return result;
  }
  auto* const reserve =
      reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)>(
          FamilyDriver().Symbol("cuMemAddressReserve"));
  const uint64_t bytes = list->subresource.sparseLevel.extentWidth;
  CUdeviceptr address = 0;
  result = reserve(&address, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  result = cu.MemMap(address, bytes, 0, list->memHandle.memHandle, 0);
  if (result == CUDA_SUCCESS) {
    array->address = address;
    array->bytes = bytes;
  }
  return result;
}

}  // namespace

const driver::Driver* SimulatedDriver() {
  static const driver::Driver* const opened_once = [] {
    auto opened = driver::Driver::Open({.path = "sim"});
    return opened.ok() ? opened->release() : nullptr;
  }();
  return opened_once;
}

const driver::Driver& FamilyDriver() {
  return family_driver != nullptr ? *family_driver : *SimulatedDriver();
}
void SetFamilyDriver(const driver::Driver& driver) { family_driver = &driver; }

const driver::Table& SparseTable() {
  static const driver::Table table = [] {
    driver::Table made = FamilyDriver().table();
    made.Array3DCreate = CreateSparse;
    made.ArrayDestroy = DestroySparse;
    made.MemMapArrayAsync = MapPart;
    return made;
  }();
  return table;
}

void ForgetSparseArrays() {
  const std::lock_guard lock(sparse_mutex);
  sparse_arrays = {};
}

}  // namespace gpushare::books
