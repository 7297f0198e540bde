// SPDX-License-Identifier: Apache-2.0
// Runs Thrust's sort; its temporary memory and a container are in a virtual device's quota. Exit code 77: no GPU.
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/reverse.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cstdio>

#include "gpushare/cuda_mr.h"
#include "gpushare/gpu.h"
#include "gpushare/runtime.h"

using namespace gpushare;

static_assert(cuda::mr::resource_with<CudaMemoryResource, cuda::mr::device_accessible>);

#define MUST(condition)                                          \
  do {                                                           \
    if (!(condition)) {                                          \
      std::printf("line %d: %s failed\n", __LINE__, #condition); \
      return 1;                                                  \
    }                                                            \
  } while (false)

int main() {
  const auto runtime = Runtime::Create();
  const auto gpu = runtime.ok() ? Gpu::Open(*runtime, "0") : runtime.status();
  if (!gpu.ok()) {
    std::printf("%s\n", std::string(gpu.status().message()).c_str());
    return 77;
  }
  const auto tenant = Tenant::Create(*runtime, {.name = "thrust"});
  const auto device = VirtualDevice::Create(*gpu, *tenant, "memory=256MiB");
  MUST(device.ok());
  const auto pool = Allocator::Create(*device, {.strategy = AllocationStrategy::kSuballocating});
  MUST(pool.ok());
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  {
    CudaMemoryResource resource(*pool);
    constexpr size_t kKeys = 1 << 22;
    auto* const memory =
        static_cast<int*>(resource.allocate(cuda::stream_ref(stream), kKeys * sizeof(int)));
    const thrust::device_ptr<int> keys(memory);
    ThrustTemporaries temporaries(*pool, cuda::stream_ref(stream));
    const auto policy = thrust::cuda::par_nosync(temporaries).on(stream);
    thrust::sequence(policy, keys, keys + kKeys);
    thrust::reverse(policy, keys, keys + kKeys);
    const uint64_t before = pool->stats()->served;
    thrust::stable_sort(policy, keys, keys + kKeys);
    MUST(pool->stats()->served > before);  // its temporary memory came from here
    MUST(cudaStreamSynchronize(stream) == cudaSuccess);
    MUST(thrust::is_sorted(policy, keys, keys + kKeys));
    resource.deallocate(cuda::stream_ref(stream), memory, kKeys * sizeof(int));
    bool refused = false;
    try {
      resource.allocate(cuda::stream_ref(stream), size_t{1} << 30);
    } catch (const std::bad_alloc& error) {
      refused = true;
      std::printf("%s\n", error.what());
    }
    MUST(refused);
  }
  MUST(pool->Trim().ok());
  MUST(device->stats()->memory.used.count() == 0);
  MUST(cudaStreamDestroy(stream) == cudaSuccess);
  std::printf("sorted\n");
  return 0;
}
