// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls on every family of memory, valid and invalid, from several threads: no call crashes,
// every result has a name, and when everything is freed nothing stays charged. GPUSHARE_SIM_RANDOM_STEPS makes it
// longer.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>

#include "tests/sim/sim_test.h"

// The headers of CUDA 13 declare only the newest versions.
#undef cuMemPrefetchAsync
extern "C" CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);

namespace gpushare::sim_test {
namespace {

constexpr uint64_t kSizes[] = {0, 1, 511, 4096, 70'000, kGranule, 3 * kGranule, uint64_t{1} << 63};

struct Range {
  CUdeviceptr address;
  size_t size;
};

// State that the threads share; one thread runs at a time. The first entry of each list is invalid.
struct SharedMemory {
  std::vector<CUmemGenericAllocationHandle> handles{0x123456};
  std::vector<Range> reservations{{kGranule, kGranule}};
  std::vector<CUdeviceptr> pointers{1, uint64_t{1} << 62};
  std::vector<CUarray> arrays{nullptr};
  std::vector<CUmipmappedArray> mipmapped{nullptr};
  std::vector<CUexternalMemory> external{nullptr};
  std::vector<CUstream> streams{nullptr};
  uint32_t* words = nullptr;
  int ending = 0;  // the calls that wait for the device before memory ends
};

class MemoryActor {
 public:
  MemoryActor(unsigned seed, SharedMemory& shared) : random_(seed), seed_(seed), s_(shared) {}

  void Run(CUcontext context, int steps) {
    EXPECT_CU(cuCtxSetCurrent(context));
    for (int i = 0; i < steps; ++i) {
      const char* name = nullptr;
      const CUresult result = Step();
      EXPECT_CU(cuGetErrorName(result, &name)) << result;
      ASSERT_NE(result, CUDA_ERROR_ILLEGAL_ADDRESS);  // every mapping has access
    }
  }

 private:
  template <typename T>
  T Any(const std::vector<T>& list) {
    return list[random_() % list.size()];
  }
  uint64_t Size() { return kSizes[random_() % std::size(kSizes)]; }
  // A random address, mostly inside an allocation.
  CUdeviceptr Address() {
    const CUdeviceptr base = random_() % 2 == 0 ? Any(s_.pointers) : Any(s_.reservations).address;
    return base + (random_() % 3 == 0 ? Size() : random_() % 600 * 8);
  }

  CUresult Step() {
    const unsigned what = static_cast<unsigned>(random_() % 22);
    // Memory that one thread frees once the device is done with it must not be used by another meanwhile, which would
    // be a fault.
    const bool ends = what == 3 || what == 5 || what == 10 || what == 16 || what == 20;
    const bool uses = (what >= 11 && what <= 14) || what == 17;
    if (uses && s_.ending > 0) return CUDA_SUCCESS;
    s_.ending += ends ? 1 : 0;
    const CUresult result = Call(what);
    s_.ending -= ends ? 1 : 0;
    return result;
  }

  CUresult Call(unsigned what) {
    CUresult result = CUDA_SUCCESS;
    switch (what) {
      case 0: {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type = static_cast<CUmemLocationType>(random_() % 8 == 0 ? 3 : 1);
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        CUmemGenericAllocationHandle handle;
        result = cuMemCreate(&handle, Size(), &properties, 0);
        if (result == CUDA_SUCCESS) s_.handles.push_back(handle);
        return result;
      }
      case 1:
        return cuMemRelease(Any(s_.handles));
      case 2: {
        Range range{0, Size()};
        result = cuMemAddressReserve(&range.address, range.size, 0, Any(s_.pointers), 0);
        if (result == CUDA_SUCCESS) s_.reservations.push_back(range);
        return result;
      }
      case 3: {
        const Range range = Any(s_.reservations);
        return cuMemAddressFree(range.address, random_() % 4 == 0 ? Size() : range.size);
      }
      case 4: {
        const Range range = Any(s_.reservations);
        const CUdeviceptr at = range.address + random_() % 3 * kGranule;
        result = cuMemMap(at, kGranule, 0, Any(s_.handles), 0);
        if (result != CUDA_SUCCESS) return result;
        const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        return cuMemSetAccess(at, kGranule, &access, 1);
      }
      case 5: {
        const Range range = Any(s_.reservations);
        return cuMemUnmap(range.address + random_() % 3 * kGranule, (1 + random_() % 3) * kGranule);
      }
      case 6: {
        CUmemGenericAllocationHandle handle;
        result = cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(Address()));
        return result == CUDA_SUCCESS ? cuMemRelease(handle) : result;
      }
      case 7: {
        int descriptor = -1;
        result = cuMemExportToShareableHandle(&descriptor, Any(s_.handles),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (result != CUDA_SUCCESS) return result;
        CUmemGenericAllocationHandle handle;
        result = cuMemImportFromShareableHandle(
            &handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(descriptor);
        return result == CUDA_SUCCESS ? cuMemRelease(handle) : result;
      }
      case 8:
      case 9: {
        CUdeviceptr pointer;
        result = random_() % 2 == 0 ? cuMemAlloc(&pointer, Size())
                                    : cuMemAllocManaged(&pointer, Size(), CU_MEM_ATTACH_GLOBAL);
        if (result == CUDA_SUCCESS) s_.pointers.push_back(pointer);
        return result;
      }
      case 10:
        return cuMemFree(random_() % 4 == 0 ? Address() : Any(s_.pointers));
      case 11:
        return cuMemPrefetchAsync(Address(), Size(), random_() % 2 == 0 ? CU_DEVICE_CPU : 0,
                                  Any(s_.streams));
      case 12:
        return cuMemsetD8Async(Address(), 1, Size(), Any(s_.streams));
      case 13:
        return cuMemcpyDtoDAsync(Address(), Address(), random_() % 5000, Any(s_.streams));
      case 14: {
        char host[512] = {};
        return random_() % 2 == 0 ? cuMemcpyHtoD(Address(), host, random_() % 512)
                                  : cuMemcpyDtoH(host, Address(), random_() % 512);
      }
      case 15: {
        const CUDA_ARRAY3D_DESCRIPTOR descriptor{random_() % 70,
                                                 random_() % 3 * 8,
                                                 random_() % 2 * 6,
                                                 CU_AD_FORMAT_UNSIGNED_INT8,
                                                 1,
                                                 static_cast<unsigned>(random_() % 8)};
        if (random_() % 2 == 0) {
          CUarray array;
          result = cuArray3DCreate(&array, &descriptor);
          if (result == CUDA_SUCCESS) s_.arrays.push_back(array);
          return result;
        }
        CUmipmappedArray array;
        result = cuMipmappedArrayCreate(&array, &descriptor, static_cast<unsigned>(random_() % 5));
        if (result == CUDA_SUCCESS) s_.mipmapped.push_back(array);
        return result;
      }
      case 16:
        return random_() % 2 == 0 ? cuArrayDestroy(Any(s_.arrays))
                                  : cuMipmappedArrayDestroy(Any(s_.mipmapped));
      case 17: {
        CUDA_MEMCPY3D copy{};
        copy.srcMemoryType = static_cast<CUmemorytype>(2 + random_() % 2);
        copy.dstMemoryType = static_cast<CUmemorytype>(2 + random_() % 2);
        copy.srcDevice = Address();
        copy.dstDevice = Address();
        copy.srcArray = Any(s_.arrays);
        copy.dstArray = Any(s_.arrays);
        CUarray level;
        if (cuMipmappedArrayGetLevel(&level, Any(s_.mipmapped), 0) == CUDA_SUCCESS) {
          copy.dstArray = level;
        }
        copy.srcPitch = copy.dstPitch = random_() % 100;
        copy.WidthInBytes = random_() % 40;
        copy.Height = random_() % 9;
        copy.Depth = random_() % 4;
        return cuMemcpy3DAsync(&copy, Any(s_.streams));
      }
      case 18: {
        // A wait is followed by the write that ends it, on another stream. Each actor has its own word.
        const auto word = reinterpret_cast<CUdeviceptr>(s_.words + seed_);
        result = cuStreamWaitValue32(s_.streams[1], word, ++value_, CU_STREAM_WAIT_VALUE_GEQ);
        if (result != CUDA_SUCCESS) return result;
        return cuStreamWriteValue32(s_.streams[2], word, value_, 0);
      }
      case 19: {
        const int descriptor = memfd_create("exporter", MFD_CLOEXEC);
        EXPECT_EQ(0, ftruncate(descriptor, 70'000));
        CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle{};
        handle.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
        handle.handle.fd = descriptor;
        handle.size = Size();
        CUexternalMemory memory;
        result = cuImportExternalMemory(&memory, &handle);
        if (result != CUDA_SUCCESS) {
          close(descriptor);
          return result;
        }
        s_.external.push_back(memory);
        CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
        buffer.size = handle.size;
        CUdeviceptr pointer;
        result = cuExternalMemoryGetMappedBuffer(&pointer, memory, &buffer);
        if (result == CUDA_SUCCESS) s_.pointers.push_back(pointer);
        return result;
      }
      case 20:
        return cuDestroyExternalMemory(Any(s_.external));
      default: {
        uint64_t value[4];
        return cuPointerGetAttribute(value, static_cast<CUpointer_attribute>(1 + random_() % 20),
                                     Address());
      }
    }
  }

  std::mt19937_64 random_;
  const unsigned seed_;
  uint32_t value_ = 0;
  SharedMemory& s_;
};

TEST_F(SimTest, RandomCallsOnEveryFamilyOfMemoryLeaveNothingCharged) {
  const char* const steps_text = std::getenv("GPUSHARE_SIM_RANDOM_STEPS");
  const int steps = steps_text == nullptr ? 4000 : std::atoi(steps_text);
  SharedMemory shared;
  void* words = nullptr;
  ASSERT_CU(cuMemAllocHost(&words, 64));
  shared.words = static_cast<uint32_t*>(words);
  std::fill_n(shared.words, 16, 0u);
  for (int i = 0; i < 2; ++i) shared.streams.push_back(NewStream());
  const uint64_t before = gpushare_sim_memory_used(0);
  {
    std::vector<std::unique_ptr<SimThread>> threads;
    for (unsigned seed = 1; seed <= 3; ++seed) {
      threads.push_back(std::make_unique<SimThread>("actor", [&shared, seed, steps, this] {
        MemoryActor(seed, shared).Run(context_, steps / 3);
      }));
    }
  }
  ASSERT_CU(cuCtxSynchronize());
  for (const Range& range : shared.reservations) {
    for (int i = 0; i < 3; ++i)
      cuMemUnmap(range.address + static_cast<size_t>(i) * kGranule, kGranule);
    cuMemAddressFree(range.address, range.size);
  }
  for (const CUdeviceptr pointer : shared.pointers) cuMemFree(pointer);
  for (const auto handle : shared.handles) cuMemRelease(handle);
  for (const CUarray array : shared.arrays) cuArrayDestroy(array);
  for (const CUmipmappedArray array : shared.mipmapped) cuMipmappedArrayDestroy(array);
  for (const CUexternalMemory memory : shared.external) cuDestroyExternalMemory(memory);
  EXPECT_EQ(gpushare_sim_memory_used(0), before);
}

}  // namespace
}  // namespace gpushare::sim_test
