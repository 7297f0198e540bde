// SPDX-License-Identifier: Apache-2.0
// Measures what the books add to a pair of allocation and free, for each family of allocations.
//
// The driver is a table of functions that do nothing but return, so the figures are the books' own work and the calls
// themselves (two for most pairs, six for a pool's). 1000 other allocations are live. For graphs, the figure is one launch of a
// graph that was launched before.
//
// Bar: 60 ns for a pair.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "books/books.h"

namespace gpushare::books {
namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr uint64_t kBase = 0x7f0000000000;

uint64_t next = kBase;  // the next address or handle to hand out

driver::Table Answers() {
  driver::Table table;
  table.MemAlloc = [](CUdeviceptr* pointer, size_t) { return *pointer = next, CUDA_SUCCESS; };
  table.MemAllocPitch = [](CUdeviceptr* pointer, size_t* pitch, size_t width, size_t, unsigned) {
    *pointer = next;
    *pitch = (width + 511) / 512 * 512;
    return CUDA_SUCCESS;
  };
  table.MemFree = [](CUdeviceptr) { return CUDA_SUCCESS; };
  table.ArrayCreate = [](CUarray* array, const CUDA_ARRAY_DESCRIPTOR*) {
    return *array = reinterpret_cast<CUarray>(next), CUDA_SUCCESS;
  };
  table.ArrayDestroy = [](CUarray) { return CUDA_SUCCESS; };
  table.MemCreate = [](CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                       unsigned long long) { return *handle = next, CUDA_SUCCESS; };
  table.MemRelease = [](CUmemGenericAllocationHandle) { return CUDA_SUCCESS; };
  table.CtxGetDevice = [](CUdevice* device) { return *device = 0, CUDA_SUCCESS; };
  table.DeviceGetCount = [](int* count) { return *count = 1, CUDA_SUCCESS; };
  table.DeviceGetDefaultMemPool = table.DeviceGetMemPool = [](CUmemoryPool* pool, CUdevice) {
    return *pool = reinterpret_cast<CUmemoryPool>(uintptr_t{64}), CUDA_SUCCESS;
  };
  table.GraphUpload = [](CUgraphExec, CUstream) { return CUDA_SUCCESS; };
  table.StreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    return *status = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
  };
  table.PointerGetAttribute = [](void* data, CUpointer_attribute, CUdeviceptr) {
    return *static_cast<int*>(data) = 0, CUDA_SUCCESS;
  };
  table.MemPoolGetAttribute = [](CUmemoryPool, CUmemPool_attribute, void* data) {
    return *static_cast<uint64_t*>(data) = uint64_t{64} << 30, CUDA_SUCCESS;
  };
  table.MemAllocAsync = [](CUdeviceptr* pointer, size_t, CUstream) {
    return *pointer = next, CUDA_SUCCESS;
  };
  table.MemFreeAsync = [](CUdeviceptr, CUstream) { return CUDA_SUCCESS; };
  table.MemAllocManaged = [](CUdeviceptr* pointer, size_t, unsigned) {
    return *pointer = next, CUDA_SUCCESS;
  };
  table.MipmappedArrayCreate = [](CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR*,
                                  unsigned) {
    return *array = reinterpret_cast<CUmipmappedArray>(next), CUDA_SUCCESS;
  };
  table.MipmappedArrayDestroy = [](CUmipmappedArray) { return CUDA_SUCCESS; };
  table.ImportExternalMemory = [](CUexternalMemory* memory,
                                  const CUDA_EXTERNAL_MEMORY_HANDLE_DESC*) {
    return *memory = reinterpret_cast<CUexternalMemory>(next), CUDA_SUCCESS;
  };
  table.DestroyExternalMemory = [](CUexternalMemory) { return CUDA_SUCCESS; };
  table.MemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
    return CUDA_SUCCESS;
  };
  table.MemUnmap = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  table.GraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph, unsigned long long) {
    return *exec = reinterpret_cast<CUgraphExec>(next), CUDA_SUCCESS;
  };
  table.GraphGetNodes = [](CUgraph, CUgraphNode* nodes, size_t* count) {
    if (nodes != nullptr) *nodes = nullptr;
    return *count = 1, CUDA_SUCCESS;
  };
  table.GraphNodeGetType = [](CUgraphNode, CUgraphNodeType* type) {
    return *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_SUCCESS;
  };
  table.GraphMemAllocNodeGetParams = [](CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
    *parameters = {};
    return parameters->bytesize = kBytes, CUDA_SUCCESS;
  };
  table.GraphLaunch = [](CUgraphExec, CUstream) { return CUDA_SUCCESS; };
  table.DeviceGetGraphMemAttribute = [](CUdevice, CUgraphMem_attribute, void* data) {
    return *static_cast<uint64_t*>(data) = uint64_t{2} << 20, CUDA_SUCCESS;
  };
  table.MemGetAllocationGranularity = [](size_t* bytes, const CUmemAllocationProp*,
                                         CUmemAllocationGranularity_flags) {
    return *bytes = size_t{2} << 20, CUDA_SUCCESS;
  };
  return table;
}

struct World {
  driver::Table table = Answers();
  std::unique_ptr<quota::Account> account = *quota::Account::Create(uint64_t{1} << 50);
  Books books{table};
  // The caller knows its context.
  Payer payer{
      .account = account.get(), .owner = 1, .context = reinterpret_cast<CUcontext>(uintptr_t{8})};

  template <typename Take>
  explicit World(const Take& take) {
    for (int i = 0; i < 1000; ++i) {
      if (!take(*this).ok()) std::abort();
      next += kBytes;
    }
  }
};

// Times `take` and `give`, which frees what `take` returned.
template <typename Take, typename Give>
void Pairs(benchmark::State& state, const Take& take, const Give& give) {
  next = kBase;
  World world(take);
  for (auto _ : state) {
    if (!take(world).ok() || give(world) != CUDA_SUCCESS) {
      state.SkipWithError("the accounting failed");
      break;
    }
  }
  if (!world.books.CheckInvariants().ok()) std::abort();
}

void Direct(benchmark::State& state) {
  CUdeviceptr pointer = 0;
  Pairs(
      state, [&](World& w) { return w.books.MemAlloc(w.payer, &pointer, kBytes); },
      [&](World& w) { return w.books.MemFree(pointer); });
}
void Pitched(benchmark::State& state) {
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  Pairs(
      state,
      [&](World& w) { return w.books.MemAllocPitch(w.payer, &pointer, &pitch, 1000, 1000, 4); },
      [&](World& w) { return w.books.MemFree(pointer); });
}
void Array(benchmark::State& state) {
  CUDA_ARRAY_DESCRIPTOR shape{};
  shape.Width = shape.Height = 500;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  CUarray array = nullptr;
  Pairs(
      state, [&](World& w) { return w.books.ArrayCreate(w.payer, &array, &shape); },
      [&](World& w) { return w.books.ArrayDestroy(array); });
}
void Virtual(benchmark::State& state) {
  CUmemAllocationProp properties{};
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  Pairs(
      state, [&](World& w) { return w.books.MemCreate(w.payer, &handle, kBytes, &properties, 0); },
      [&](World& w) { return w.books.MemRelease(handle); });
}
void Pool(benchmark::State& state) {
  CUdeviceptr pointer = 0;
  Pairs(
      state, [&](World& w) { return w.books.MemAllocAsync(w.payer, &pointer, kBytes, nullptr); },
      [&](World& w) { return w.books.MemFreeAsync(pointer, nullptr); });
}

void Managed(benchmark::State& state) {
  CUdeviceptr pointer = 0;
  Pairs(
      state, [&](World& w) { return w.books.MemAllocManaged(w.payer, &pointer, kBytes, 1); },
      [&](World& w) { return w.books.MemFree(pointer); });
}
void Mipmapped(benchmark::State& state) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = shape.Height = 500;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  CUmipmappedArray array = nullptr;
  Pairs(
      state, [&](World& w) { return w.books.MipmappedArrayCreate(w.payer, &array, &shape, 4); },
      [&](World& w) { return w.books.MipmappedArrayDestroy(array); });
}
void External(benchmark::State& state) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC descriptor{};
  descriptor.size = kBytes;
  CUexternalMemory memory = nullptr;
  Pairs(
      state, [&](World& w) { return w.books.ImportExternalMemory(w.payer, &memory, &descriptor); },
      [&](World& w) { return w.books.DestroyExternalMemory(memory); });
}
// One mapping of an allocation, and its end.
void Mapping(benchmark::State& state) {
  CUmemAllocationProp properties{};
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  next = kBase;
  World world(
      [&](World& w) { return w.books.MemCreate(w.payer, &handle, kBytes, &properties, 0); });
  for (auto _ : state) {
    if (!world.books.MemMap(world.payer, kBase, kBytes, 0, handle, 0).ok() ||
        world.books.MemUnmap(kBase, kBytes) != CUDA_SUCCESS) {
      state.SkipWithError("the accounting failed");
    }
  }
}
void Graph(benchmark::State& state) {
  CUgraphExec exec = nullptr;
  next = kBase;
  World world(
      [&](World& w) { return Answer{w.books.GraphInstantiateWithFlags(&exec, nullptr, 0)}; });
  for (auto _ : state) {
    if (!world.books.GraphLaunch(world.payer, exec, nullptr).ok()) {
      state.SkipWithError("the accounting failed");
    }
  }
}

BENCHMARK(Direct);
BENCHMARK(Pitched);
BENCHMARK(Managed);
BENCHMARK(Array);
BENCHMARK(Mipmapped);
BENCHMARK(Virtual);
BENCHMARK(Mapping);
BENCHMARK(External);
BENCHMARK(Pool);
BENCHMARK(Graph);

}  // namespace
}  // namespace gpushare::books

BENCHMARK_MAIN();
