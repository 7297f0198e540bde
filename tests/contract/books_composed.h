// SPDX-License-Identifier: Apache-2.0
// Families whose allocations take several calls: private pools, graphs, mapped memory, and memory that is bound to a multicast
// object or mapped into a sparse array. If one of the calls fails, the earlier ones are undone.
#ifndef GPUSHARE_TESTS_CONTRACT_BOOKS_COMPOSED_H_
#define GPUSHARE_TESTS_CONTRACT_BOOKS_COMPOSED_H_

#include <cstdint>
#include <utility>

#include "books/books.h"
#include "driver/driver.h"
#include "tests/contract/sparse_driver.h"

namespace gpushare::books {

template <typename F>
class AtEnd {
 public:
  explicit AtEnd(F f) : f_(std::move(f)) {}
  ~AtEnd() { f_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  const F f_;
};

// Makes the calls through the books, or directly to the driver.
struct Face {
  Books* books = nullptr;

  const driver::Table& cu() const { return SparseTable(); }
  template <typename F>
  F* Symbol(const char* name) const {
    return reinterpret_cast<F*>(FamilyDriver().Symbol(name));
  }
  template <typename Booked, typename Raw>
  auto Call(const Booked& booked, const Raw& raw) const {
    return books != nullptr ? booked(*books) : raw(cu());
  }

  Answer MemCreate(const Payer& payer, uint64_t bytes, CUmemGenericAllocationHandle* handle) const {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    return Call(
        [&](Books& b) { return b.MemCreate(payer, handle, bytes, &properties, 0); },
        [&](const driver::Table& d) { return Answer{d.MemCreate(handle, bytes, &properties, 0)}; });
  }
  CUresult MemRelease(CUmemGenericAllocationHandle handle) const {
    return Call([&](Books& b) { return b.MemRelease(handle); },
                [&](const driver::Table& d) { return d.MemRelease(handle); });
  }
};

// Creates a pool for this one allocation. The pool ends with the allocation.
inline Answer TakeFromOwnPool(const Face& face, const Payer& payer, uint64_t bytes, CUstream stream,
                              uint64_t* thing) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  auto* const pointer = reinterpret_cast<CUdeviceptr*>(thing);
  CUmemoryPool pool = nullptr;
  const CUresult made =
      face.Call([&](Books& b) { return b.MemPoolCreate(&pool, &properties); },
                [&](const driver::Table& d) { return d.MemPoolCreate(&pool, &properties); });
  if (made != CUDA_SUCCESS) return {made};
  const AtEnd destroy([&] {
    face.Call([&](Books& b) { return b.MemPoolDestroy(pool); },
              [&](const driver::Table& d) { return d.MemPoolDestroy(pool); });
  });
  return face.Call(
      [&](Books& b) { return b.MemAllocFromPoolAsync(payer, pointer, bytes, pool, stream); },
      [&](const driver::Table& d) {
        return Answer{d.MemAllocFromPoolAsync(pointer, bytes, pool, stream)};
      });
}

// Memory that a graph's launch allocates and leaves to the program. The graph is destroyed at once.
inline Answer TakeByGraph(const Face& face, const Payer& payer, uint64_t bytes, CUstream stream,
                          uint64_t* thing) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  parameters.bytesize = bytes;
  CUresult result = face.Symbol<CUresult(CUgraph*, unsigned)>("cuGraphCreate")(&graph, 0);
  if (result != CUDA_SUCCESS) return {result};
  const AtEnd destroy_graph([&] { face.cu().GraphDestroy(graph); });
  result = face.Symbol<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                                CUDA_MEM_ALLOC_NODE_PARAMS*)>("cuGraphAddMemAllocNode")(
      &node, graph, nullptr, 0, &parameters);
  if (result != CUDA_SUCCESS) return {result};
  result = face.Call(
      [&](Books& b) { return b.GraphInstantiateWithFlags(&exec, graph, 0); },
      [&](const driver::Table& d) { return d.GraphInstantiateWithFlags(&exec, graph, 0); });
  if (result != CUDA_SUCCESS) return {result};
  const AtEnd destroy([&] {
    face.Call([&](Books& b) { return b.GraphExecDestroy(exec); },
              [&](const driver::Table& d) { return d.GraphExecDestroy(exec); });
  });
  const Answer answer =
      face.Call([&](Books& b) { return b.GraphLaunch(payer, exec, stream); },
                [&](const driver::Table& d) { return Answer{d.GraphLaunch(exec, stream)}; });
  if (answer.ok()) *thing = parameters.dptr;
  return answer;
}
// Frees the memory, and also the memory that the device keeps for graphs and that no other graph uses.
inline CUresult GiveOfGraph(const Face& face, uint64_t pointer, CUstream stream) {
  const CUresult result =
      face.Call([&](Books& b) { return b.MemFreeAsync(pointer, stream); },
                [&](const driver::Table& d) { return d.MemFreeAsync(pointer, stream); });
  if (result != CUDA_SUCCESS) return result;
  face.cu().StreamSynchronize(stream);
  return face.Call([&](Books& b) { return b.DeviceGraphMemTrim(0); },
                   [&](const driver::Table& d) { return d.DeviceGraphMemTrim(0); });
}

// Memory that only a mapping keeps alive. `thing` is the address with the number of granules in its low bits.
constexpr uint64_t kMappedGranule = uint64_t{2} << 20;
inline Answer TakeMapped(const Face& face, const Payer& payer, uint64_t bytes, uint64_t* thing) {
  CUmemGenericAllocationHandle handle = 0;
  const Answer created = face.MemCreate(payer, bytes, &handle);
  if (!created.ok()) return created;
  const AtEnd release([&] { face.MemRelease(handle); });
  CUdeviceptr address = 0;
  const CUresult result =
      face.Symbol<CUresult(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)>(
          "cuMemAddressReserve")(&address, bytes, kMappedGranule, 0, 0);
  if (result != CUDA_SUCCESS) return {result};
  Answer answer;
  const AtEnd undo([&] {
    if (*thing == 0) face.Symbol<CUresult(CUdeviceptr, size_t)>("cuMemAddressFree")(address, bytes);
  });
  answer = face.Call(
      [&](Books& b) { return b.MemMap(payer, address, bytes, 0, handle, 0); },
      [&](const driver::Table& d) { return Answer{d.MemMap(address, bytes, 0, handle, 0)}; });
  if (answer.ok()) *thing = address | bytes / kMappedGranule;
  return answer;
}
inline CUresult GiveMapped(const Face& face, uint64_t thing) {
  const CUdeviceptr address = thing & ~(kMappedGranule - 1);
  const uint64_t bytes = thing % kMappedGranule * kMappedGranule;
  const CUresult result =
      face.Call([&](Books& b) { return b.MemUnmap(address, bytes); },
                [&](const driver::Table& d) { return d.MemUnmap(address, bytes); });
  if (result == CUDA_SUCCESS) {
    face.Symbol<CUresult(CUdeviceptr, size_t)>("cuMemAddressFree")(address, bytes);
  }
  return result;
}

// Memory that only a multicast object keeps alive. Releasing the object frees it.
inline Answer TakeBound(const Face& face, const Payer& payer, uint64_t bytes, uint64_t* thing) {
  CUmemGenericAllocationHandle memory = 0, object = 0;
  const Answer created = face.MemCreate(payer, bytes, &memory);
  if (!created.ok()) return created;
  const AtEnd release([&] { face.MemRelease(memory); });
  CUmulticastObjectProp properties{};
  properties.numDevices = 1;
  properties.size = bytes;
  CUresult result =
      face.Call([&](Books& b) { return b.MulticastCreate(&object, &properties); },
                [&](const driver::Table& d) { return d.MulticastCreate(&object, &properties); });
  if (result != CUDA_SUCCESS) return {result};
  const AtEnd undo([&] {
    if (*thing == 0) face.MemRelease(object);
  });
  result = face.Symbol<CUresult(CUmemGenericAllocationHandle, CUdevice)>("cuMulticastAddDevice")(
      object, 0);
  if (result != CUDA_SUCCESS) return {result};
  result = face.Call(
      [&](Books& b) { return b.MulticastBindMem(object, 0, memory, 0, bytes, 0); },
      [&](const driver::Table& d) { return d.MulticastBindMem(object, 0, memory, 0, bytes, 0); });
  if (result == CUDA_SUCCESS) *thing = object;
  return {result};
}

// Memory that only a sparse array keeps alive. It fills the whole array.
inline CUresult MapSparse(const Face& face, uint64_t array, CUmemGenericAllocationHandle memory,
                          uint64_t bytes, CUstream stream) {
  CUarrayMapInfo part{};
  part.resourceType = CU_RESOURCE_TYPE_ARRAY;
  part.resource.array = reinterpret_cast<CUarray>(array);
  part.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  part.subresource.sparseLevel.extentWidth = static_cast<unsigned>(bytes);
  part.memOperationType = memory != 0 ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
  part.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
  part.memHandle.memHandle = memory;
  return face.Call([&](Books& b) { return b.MemMapArrayAsync(&part, 1, stream); },
                   [&](const driver::Table& d) { return d.MemMapArrayAsync(&part, 1, stream); });
}
inline CUresult DestroyArray(const Face& face, uint64_t thing) {
  auto* const array = reinterpret_cast<CUarray>(thing);
  return face.Call([&](Books& b) { return b.ArrayDestroy(array); },
                   [&](const driver::Table& d) { return d.ArrayDestroy(array); });
}
inline Answer TakeSparse(const Face& face, const Payer& payer, uint64_t bytes, CUstream stream,
                         uint64_t* thing) {
  CUmemGenericAllocationHandle memory = 0;
  const Answer created = face.MemCreate(payer, bytes, &memory);
  if (!created.ok()) return created;
  const AtEnd release([&] { face.MemRelease(memory); });
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = bytes;
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  shape.NumChannels = 1;
  shape.Flags = kSparseArray;
  CUarray array = nullptr;
  const Answer made =
      face.Call([&](Books& b) { return b.Array3DCreate(payer, &array, &shape); },
                [&](const driver::Table& d) { return Answer{d.Array3DCreate(&array, &shape)}; });
  if (!made.ok()) return made;
  const AtEnd undo([&] {
    if (*thing == 0) DestroyArray(face, KeyOf(array));
  });
  const CUresult result = MapSparse(face, KeyOf(array), memory, bytes, stream);
  if (result == CUDA_SUCCESS) *thing = KeyOf(array);
  return {result};
}
inline CUresult GiveUnmapped(const Face& face, uint64_t array, CUstream stream) {
  const CUresult result = MapSparse(face, array, 0, UINT32_MAX, stream);
  return result == CUDA_SUCCESS ? DestroyArray(face, array) : result;
}

}  // namespace gpushare::books

#endif  // GPUSHARE_TESTS_CONTRACT_BOOKS_COMPOSED_H_
