// SPDX-License-Identifier: Apache-2.0
// External memory: a memfd stands for what another API allocated.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class ExternalMemoryTest : public SimTest {
 protected:
  static int Exported(size_t bytes) {
    const int descriptor = memfd_create("exporter", MFD_CLOEXEC);
    EXPECT_EQ(0, ftruncate(descriptor, static_cast<off_t>(bytes)));
    return descriptor;
  }
  static CUresult Import(int descriptor, uint64_t bytes, CUexternalMemory* memory) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle{};
    handle.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    handle.handle.fd = descriptor;
    handle.size = bytes;
    return cuImportExternalMemory(memory, &handle);
  }
  static CUresult Map(CUexternalMemory memory, uint64_t offset, uint64_t bytes,
                      CUdeviceptr* pointer) {
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer{};
    buffer.offset = offset;
    buffer.size = bytes;
    return cuExternalMemoryGetMappedBuffer(pointer, memory, &buffer);
  }
};

TEST_F(ExternalMemoryTest, TheExportersBytesAreTheDevices) {
  const int descriptor = Exported(kMiB);
  void* const exporters = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  ASSERT_NE(exporters, MAP_FAILED);
  auto* const bytes = static_cast<unsigned char*>(exporters);
  std::memset(bytes, 3, kMiB);
  CUexternalMemory memory;
  ASSERT_CU(Import(descriptor, kMiB, &memory));  // the driver owns the descriptor now
  EXPECT_EQ(Charged(), kMiB);
  CUdeviceptr a, b;
  ASSERT_CU(Map(memory, 0, kMiB, &a));
  ASSERT_CU(Map(memory, 4096, 5000, &b));
  EXPECT_EQ(Charged(), kMiB);
  unsigned char read[2] = {};
  ASSERT_CU(cuMemcpyDtoH(read, b, 2));
  EXPECT_EQ(read[1], 3);
  ASSERT_CU(cuMemsetD8(a + 4096, 9, 10));
  ASSERT_CU(cuMemcpyDtoH(read, b + 9, 2));
  EXPECT_EQ(read[0], 9);
  EXPECT_EQ(read[1], 3);
  EXPECT_EQ(bytes[4096], 9);
  EXPECT_EQ(cuMemsetD8(b, 0, 5001), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr base = 0;
  size_t size = 0;
  EXPECT_CU(cuMemGetAddressRange(&base, &size, b + 100));
  EXPECT_EQ(base, b);
  EXPECT_EQ(size, 5000u);
  // The memory is charged until the object and all its buffers are gone.
  ASSERT_CU(cuDestroyExternalMemory(memory));
  EXPECT_EQ(cuDestroyExternalMemory(memory), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Map(memory, 0, 10, &a), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CU(cuMemFree(b));
  EXPECT_EQ(Charged(), kMiB);
  EXPECT_EQ(cuMemFree(b), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemFree(a));
  EXPECT_EQ(Charged(), 0u);
  munmap(exporters, kMiB);
}

TEST_F(ExternalMemoryTest, AMipmappedArrayLiesInIt) {
  const int descriptor = Exported(kMiB);
  auto* const bytes = static_cast<unsigned char*>(
      mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
  ASSERT_NE(static_cast<void*>(bytes), MAP_FAILED);
  CUexternalMemory memory;
  ASSERT_CU(Import(descriptor, kMiB, &memory));
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC part{};
  part.offset = 4096;
  part.arrayDesc = {.Width = 1024,
                    .Height = 0,
                    .Depth = 0,
                    .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                    .NumChannels = 1,
                    .Flags = 0};
  part.numLevels = 2;
  CUmipmappedArray array, other;
  ASSERT_CU(cuExternalMemoryGetMappedMipmappedArray(&array, memory, &part));
  EXPECT_EQ(Charged(), kMiB);
  CUarray level;
  ASSERT_CU(cuMipmappedArrayGetLevel(&level, array, 1));  // after 1024 elements
  const unsigned char row[32] = {7, 8, 9};
  ASSERT_CU(cuMemcpyHtoA(level, 0, row, sizeof row));
  EXPECT_EQ(bytes[4096 + 1024 + 2], 9);
  // Not more memory than there is, and only memory that exists.
  part.offset = kMiB - 512;
  EXPECT_EQ(cuExternalMemoryGetMappedMipmappedArray(&other, memory, &part),
            CUDA_ERROR_INVALID_VALUE);
  part.offset = UINT64_MAX;
  EXPECT_EQ(cuExternalMemoryGetMappedMipmappedArray(&other, memory, &part),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuExternalMemoryGetMappedMipmappedArray(nullptr, memory, &part),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuDestroyExternalMemory(memory));
  part.offset = 0;
  EXPECT_EQ(cuExternalMemoryGetMappedMipmappedArray(&other, memory, &part),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Charged(), kMiB);
  ASSERT_CU(cuMipmappedArrayDestroy(array));
  EXPECT_EQ(cuMipmappedArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Charged(), 0u);
  munmap(bytes, kMiB);
}

TEST_F(ExternalMemoryTest, TheSameMemoryIsChargedOnce) {
  const int one = Exported(kMiB), two = dup(one);
  CUexternalMemory a, b;
  ASSERT_CU(Import(one, kMiB, &a));
  ASSERT_CU(Import(two, kMiB, &b));
  EXPECT_EQ(Charged(), kMiB);
  EXPECT_EQ(-1, fcntl(two, F_GETFD));  // the driver owns this descriptor too
  ASSERT_CU(cuDestroyExternalMemory(a));
  EXPECT_EQ(Charged(), kMiB);
  ASSERT_CU(cuDestroyExternalMemory(b));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(ExternalMemoryTest, ItEndsWithTheContextThatImportedIt) {
  CUcontext before = nullptr, other = nullptr;
  ASSERT_CU(cuCtxGetCurrent(&before));
  const int descriptor = Exported(kMiB);
  CUexternalMemory kept, gone;
  ASSERT_CU(Import(dup(descriptor), kMiB, &kept));
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  ASSERT_CU(Import(descriptor, kMiB, &gone));
  EXPECT_NE(kept, gone);
  CUdeviceptr buffer;
  ASSERT_CU(Map(gone, 0, kMiB, &buffer));
  EXPECT_EQ(Charged(), 2 * kMiB);
  ASSERT_CU(cuCtxDestroy_v2(other));
  ASSERT_CU(cuCtxSetCurrent(before));
  EXPECT_EQ(Charged(), kMiB);
  EXPECT_EQ(cuDestroyExternalMemory(gone), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemFree(buffer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuDestroyExternalMemory(kept));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(ExternalMemoryTest, WhatCannotBeImportedIsRefusedAndKept) {
  CUexternalMemory memory;
  const int descriptor = Exported(kMiB), null = open("/dev/null", O_RDWR);
  EXPECT_EQ(Import(-1, 10, &memory), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Import(null, 10, &memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Import(descriptor, kMiB + 1, &memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Import(descriptor, 0, &memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Import(descriptor, uint64_t{1} << 63, &memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Import(descriptor, 10, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle{};
  handle.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32;
  handle.size = 10;
  EXPECT_EQ(cuImportExternalMemory(&memory, &handle), CUDA_ERROR_NOT_SUPPORTED);
  char error[64];
  ASSERT_EQ(0, gpushare_sim_inject("oom", error, sizeof(error)));
  EXPECT_EQ(Import(descriptor, 10, &memory), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(0, gpushare_sim_inject("clear", error, sizeof(error)));
  const int large = Exported(2048 * kMiB);
  EXPECT_EQ(Import(large, 2048 * kMiB, &memory), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(-1, fcntl(descriptor, F_GETFD));  // still owned by the caller
  EXPECT_EQ(Charged(), 0u);
  ASSERT_CU(Import(descriptor, kMiB, &memory));
  CUdeviceptr pointer;
  EXPECT_EQ(Map(memory, kMiB, 1, &pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(memory, 1, kMiB, &pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(memory, 0, 0, &pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Map(memory, UINT64_MAX, 2, &pointer), CUDA_ERROR_INVALID_VALUE);
  // It is not a handle of virtual memory management, and its buffers are not such mappings.
  ASSERT_CU(Map(memory, 0, kMiB, &pointer));
  CUmemGenericAllocationHandle retained;
  EXPECT_EQ(cuMemRelease(reinterpret_cast<CUmemGenericAllocationHandle>(memory)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(pointer)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(pointer, kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(pointer + 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemFree(pointer));
  ASSERT_CU(cuDestroyExternalMemory(memory));
  close(large);
  close(null);
}

}  // namespace
}  // namespace gpushare::sim_test
