// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: capacity, mappings, access, sharing by file descriptor, and the result of every illegal
// sequence.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <random>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class VirtualMemoryTest : public SimTest {
 protected:
  using Handle = CUmemGenericAllocationHandle;

  static CUmemAllocationProp Properties(int device = 0) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
  }
  static Handle Create(size_t size) {
    Handle handle = 0;
    const CUmemAllocationProp properties = Properties();
    EXPECT_CU(cuMemCreate(&handle, size, &properties, 0));
    return handle;
  }
  static CUdeviceptr Reserve(size_t size) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(cuMemAddressReserve(&pointer, size, 0, 0, 0));
    return pointer;
  }
  static CUresult Allow(CUdeviceptr pointer, size_t size,
                        CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
    return cuMemSetAccess(pointer, size, &access, 1);
  }
  static std::vector<unsigned char> Pattern(size_t size) {
    std::vector<unsigned char> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 13 + i / 509);
    return bytes;
  }
};

TEST_F(VirtualMemoryTest, TheDeviceAnnouncesIt) {
  int value = 0;
  ASSERT_CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                 device_));
  EXPECT_EQ(value, 1);
  size_t granularity = 0;
  const CUmemAllocationProp properties = Properties();
  for (const auto option :
       {CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}) {
    ASSERT_CU(cuMemGetAllocationGranularity(&granularity, &properties, option));
    EXPECT_EQ(granularity, kGranule);
  }
}

TEST_F(VirtualMemoryTest, BytesGoThereAndBackAcrossTheBorderOfTwoMappings) {
  const CUdeviceptr base = Reserve(3 * kGranule);
  const Handle first = Create(kGranule), second = Create(2 * kGranule);
  ASSERT_CU(cuMemMap(base, kGranule, 0, first, 0));
  ASSERT_CU(cuMemMap(base + kGranule, 2 * kGranule, 0, second, 0));
  ASSERT_CU(Allow(base, 3 * kGranule));
  const auto out = Pattern(2 * kMiB + 77);
  std::vector<unsigned char> in(out.size());
  ASSERT_CU(cuMemcpyHtoD(base + kMiB + 5, out.data(), out.size()));
  ASSERT_CU(cuMemcpyDtoH(in.data(), base + kMiB + 5, in.size()));
  EXPECT_EQ(in, out);
  // The second half is in the memory of the second mapping.
  ASSERT_CU(cuMemcpyDtoH(in.data(), base + kGranule, 100));
  EXPECT_EQ(0, std::memcmp(in.data(), out.data() + kMiB - 5, 100));
  // Sets and copies by rows cross the border too, also with other families of memory on the other side.
  ASSERT_CU(cuMemsetD32(base + kGranule - 8, 0x01020304, 4));
  CUdeviceptr other;
  ASSERT_CU(cuMemAlloc(&other, 64));
  ASSERT_CU(cuMemcpyDtoD(other, base + kGranule - 8, 16));
  unsigned words[4];
  ASSERT_CU(cuMemcpyDtoH(words, other, 16));
  for (const unsigned word : words) EXPECT_EQ(word, 0x01020304u);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = out.data();
  rows.srcPitch = 300;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = base + kGranule - 1000;
  rows.dstPitch = 400;
  rows.WidthInBytes = 300;
  rows.Height = 5;
  ASSERT_CU(cuMemcpy2D(&rows));
  for (size_t row = 0; row < 5; ++row) {
    ASSERT_CU(cuMemcpyDtoH(in.data(), base + kGranule - 1000 + row * 400, 300));
    EXPECT_EQ(0, std::memcmp(in.data(), out.data() + row * 300, 300)) << row;
  }
}

TEST_F(VirtualMemoryTest, AHandleMappedTwiceShowsTheSameBytes) {
  const CUdeviceptr base = Reserve(4 * kGranule);
  const Handle handle = Create(kGranule);
  ASSERT_CU(cuMemMap(base, kGranule, 0, handle, 0));
  ASSERT_CU(cuMemMap(base + 2 * kGranule, kGranule, 0, handle, 0));
  ASSERT_CU(Allow(base, kGranule));
  ASSERT_CU(Allow(base + 2 * kGranule, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  ASSERT_CU(cuMemsetD8(base + 1000, 42, 8));
  unsigned char byte = 0;
  ASSERT_CU(cuMemcpyDtoH(&byte, base + 2 * kGranule + 1007, 1));
  EXPECT_EQ(byte, 42);
  EXPECT_EQ(Charged(), kGranule);
  // The bytes stay when the memory is mapped elsewhere.
  ASSERT_CU(cuMemUnmap(base, kGranule));
  ASSERT_CU(cuMemUnmap(base + 2 * kGranule, kGranule));
  ASSERT_CU(cuMemMap(base + kGranule, kGranule, 0, handle, 0));
  ASSERT_CU(Allow(base + kGranule, kGranule));
  byte = 0;
  ASSERT_CU(cuMemcpyDtoH(&byte, base + kGranule + 1000, 1));
  EXPECT_EQ(byte, 42);
}

TEST_F(VirtualMemoryTest, CapacityComesBackWithTheLastOfHandleAndMappings) {
  const CUdeviceptr base = Reserve(4 * kGranule);
  EXPECT_EQ(Charged(), 0u);  // addresses cost nothing
  const Handle handle = Create(2 * kGranule);
  EXPECT_EQ(Charged(), 2 * kGranule);
  size_t free = 0, total = 0;
  ASSERT_CU(cuMemGetInfo(&free, &total));
  EXPECT_EQ(free, total - gpushare_sim_memory_used(0));
  ASSERT_CU(cuMemMap(base, kGranule, 0, handle, 0));  // a part of it
  ASSERT_CU(cuMemMap(base + 2 * kGranule, 2 * kGranule, 0, handle, 0));
  EXPECT_EQ(Charged(), 2 * kGranule);
  ASSERT_CU(cuMemRelease(handle));
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base + kGranule, kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 2 * kGranule);
  ASSERT_CU(cuMemUnmap(base, kGranule));
  EXPECT_EQ(Charged(), 2 * kGranule);
  // The handle can be retained through an address, and allows new mappings.
  Handle again = 0;
  ASSERT_CU(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(base + 3 * kGranule + 9)));
  EXPECT_EQ(again, handle);
  ASSERT_CU(cuMemUnmap(base + 2 * kGranule, 2 * kGranule));
  EXPECT_EQ(Charged(), 2 * kGranule);
  EXPECT_EQ(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(base)),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemRelease(again));
  EXPECT_EQ(Charged(), 0u);
  ASSERT_CU(cuMemAddressFree(base, 4 * kGranule));
}

TEST_F(VirtualMemoryTest, OverCapacityIsOutOfMemoryAndTakesNothing) {
  const CUmemAllocationProp properties = Properties();
  Handle handle = 77;
  EXPECT_EQ(cuMemCreate(&handle, 2048 * kMiB, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemCreate(&handle, size_t{1} << 63, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(handle, 77u);
  EXPECT_EQ(Charged(), 0u);
  handle = Create(700 * kMiB);
  CUdeviceptr pointer;
  EXPECT_EQ(cuMemAlloc(&pointer, 400 * kMiB),
            CUDA_ERROR_OUT_OF_MEMORY);  // all families share one capacity
  ASSERT_CU(cuMemRelease(handle));
  ASSERT_CU(cuMemAlloc(&pointer, 400 * kMiB));
  ASSERT_CU(cuMemFree(pointer));
}

TEST_F(VirtualMemoryTest, SizesAndPropertiesAreChecked) {
  Handle handle;
  CUmemAllocationProp properties = Properties();
  EXPECT_EQ(cuMemCreate(&handle, 0, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, 1, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, kGranule + 4096, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(nullptr, kGranule, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, kGranule, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 1), CUDA_ERROR_INVALID_VALUE);
  properties.location.id = 1;
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), CUDA_ERROR_INVALID_DEVICE);
  properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  properties = Properties();
  properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  properties = Properties();
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);

  CUdeviceptr pointer = 5;
  EXPECT_EQ(cuMemAddressReserve(&pointer, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&pointer, 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&pointer, size_t{1} << 63, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAddressReserve(&pointer, SIZE_MAX - 4095, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAddressReserve(&pointer, kGranule, 3 * 4096, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&pointer, kGranule, 0, 100, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&pointer, kGranule, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(nullptr, kGranule, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pointer, 5u);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(VirtualMemoryTest, ReservationsHonourAlignmentAndHint) {
  CUdeviceptr a, b, c;
  ASSERT_CU(cuMemAddressReserve(&a, 4096, size_t{1} << 30, 0, 0));
  EXPECT_EQ(a % (size_t{1} << 30), 0u);
  // Far more than the device has, but within the room that ThreadSanitizer leaves: programs have 1.5 TiB there, and
  // depending on where the system puts the stack, up to one of these is unusable.
  constexpr size_t kFarMore = size_t{1} << 36;
  ASSERT_CU(cuMemAddressReserve(&b, kFarMore, 0, 0, 0));
  ASSERT_CU(cuMemAddressFree(b, kFarMore));
  ASSERT_CU(cuMemAddressReserve(&c, kGranule, 0, b, 0));
  EXPECT_EQ(c, b);
  CUdeviceptr d;
  ASSERT_CU(cuMemAddressReserve(&d, kGranule, 0, c, 0));  // taken, so it is placed elsewhere
  EXPECT_NE(d, c);
  EXPECT_EQ(cuMemAddressFree(a, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(a + 4096, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemAddressFree(a, 4096));
  EXPECT_EQ(cuMemAddressFree(a, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemAddressFree(c, kGranule));
  EXPECT_CU(cuMemAddressFree(d, kGranule));
}

TEST_F(VirtualMemoryTest, MappingsLieInOneReservationAndNeverOverlap) {
  const CUdeviceptr base = Reserve(4 * kGranule);
  const Handle handle = Create(2 * kGranule);
  EXPECT_EQ(cuMemMap(base + 4096, kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, 4096, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, 0, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, kGranule, kGranule, handle, 0),
            CUDA_ERROR_INVALID_VALUE);  // offsets are not supported
  EXPECT_EQ(cuMemMap(base, 3 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, kGranule, 0, handle, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, kGranule, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base, kGranule, 0, handle + 8, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base + 3 * kGranule, 2 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(kGranule, kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemMap(base + kGranule, 2 * kGranule, 0, handle, 0));
  EXPECT_EQ(cuMemMap(base, 2 * kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base + 2 * kGranule, kGranule, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemMap(base, kGranule, 0, handle, 0));
  // Only whole mappings can be unmapped, but several at once.
  EXPECT_EQ(cuMemAddressFree(base, 4 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(base + kGranule, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(base, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(base, 4 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(base, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemUnmap(base, 3 * kGranule));
  EXPECT_EQ(cuMemUnmap(base, 3 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemAddressFree(base, 4 * kGranule));
  EXPECT_CU(cuMemRelease(handle));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(VirtualMemoryTest, AccessIsNoneUntilItIsGiven) {
  const CUdeviceptr base = Reserve(2 * kGranule);
  const Handle handle = Create(kGranule);
  unsigned long long flags = 9;
  CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_EQ(cuMemGetAccess(&flags, &here, base), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Allow(base, kGranule), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemMap(base, kGranule, 0, handle, 0));
  ASSERT_CU(cuMemGetAccess(&flags, &here, base));
  EXPECT_EQ(flags, 0u);
  ASSERT_CU(Allow(base, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  ASSERT_CU(cuMemGetAccess(&flags, &here, base + 100));
  EXPECT_EQ(flags, 1u);
  ASSERT_CU(Allow(base, kGranule));
  ASSERT_CU(cuMemGetAccess(&flags, &here, base));
  EXPECT_EQ(flags, 3u);
  EXPECT_EQ(Allow(base, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Allow(base, kGranule / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Allow(base, kGranule, static_cast<CUmemAccess_flags>(2)), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 7}, CU_MEM_ACCESS_FLAGS_PROT_READ};
  EXPECT_EQ(cuMemSetAccess(base, kGranule, &access, 1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMemSetAccess(base, kGranule, &access, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetAccess(base, kGranule, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  // A new mapping starts without access.
  ASSERT_CU(cuMemUnmap(base, kGranule));
  ASSERT_CU(cuMemMap(base, kGranule, 0, handle, 0));
  ASSERT_CU(cuMemGetAccess(&flags, &here, base));
  EXPECT_EQ(flags, 0u);
}

TEST_F(VirtualMemoryTest, AnotherDeviceDoesNotReachIt) {
  Restart(std::string(kPlain) + ",devices=2");
  const CUdeviceptr base = Reserve(kGranule);
  const Handle handle = Create(kGranule);
  ASSERT_CU(cuMemMap(base, kGranule, 0, handle, 0));
  CUmemAccessDesc both[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                            {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  EXPECT_EQ(cuMemSetAccess(base, kGranule, both, 2), CUDA_ERROR_NOT_SUPPORTED);
  unsigned long long flags = 9;
  ASSERT_CU(cuMemGetAccess(&flags, &both[0].location, base));
  EXPECT_EQ(flags, 0u);  // all or nothing
  both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_CU(cuMemSetAccess(base, kGranule, both, 2));
  EXPECT_EQ(gpushare_sim_memory_used(1), 0u);
}

TEST_F(VirtualMemoryTest, WorkWithoutAccessLosesTheContext) {
  const CUdeviceptr base = Reserve(2 * kGranule);
  const Handle handle = Create(kGranule);
  char host[64] = {};
  // Nothing is mapped, which the call detects.
  EXPECT_EQ(cuMemcpyHtoD(base, host, 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(base, 1, 64), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuMemMap(base, kGranule, 0, handle, 0));
  EXPECT_EQ(cuMemcpyHtoD(base + kGranule - 32, host, 64), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(Allow(base, kGranule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  EXPECT_CU(cuMemcpyDtoH(host, base, 64));
  EXPECT_EQ(cuMemcpyHtoD(base, host, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  // The memory belongs to the process, not to the context.
  EXPECT_EQ(Charged(), kGranule);
  EXPECT_CU(cuMemUnmap(base, kGranule));
  EXPECT_CU(cuMemRelease(handle));
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(VirtualMemoryTest, ASetWithoutAccessIsFoundOutWhenItRuns) {
  const CUdeviceptr base = Reserve(kGranule);
  ASSERT_CU(cuMemMap(base, kGranule, 0, Create(kGranule), 0));
  const CUstream stream = NewStream();
  ASSERT_CU(Spin(stream, 5000, 1));
  EXPECT_CU(cuMemsetD8Async(base, 1, 64, stream));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(VirtualMemoryTest, UnmappingWaitsForTheWorkThatMayUseIt) {
  const CUdeviceptr base = Reserve(kGranule);
  ASSERT_CU(cuMemMap(base, kGranule, 0, Create(kGranule), 0));
  ASSERT_CU(Allow(base, kGranule));
  const CUstream stream = NewStream();
  ASSERT_CU(Spin(stream, 5000, 1));
  ASSERT_CU(cuMemsetD8Async(base, 1, 64, stream));
  const uint64_t start = Now();
  EXPECT_CU(cuMemUnmap(base, kGranule));
  EXPECT_GE(Now() - start, 5000u);
  EXPECT_CU(cuStreamSynchronize(stream));
}

TEST_F(VirtualMemoryTest, ADescriptorStandsForTheAllocation) {
  const Handle handle = Create(kGranule);
  int descriptor = -1;
  ASSERT_CU(cuMemExportToShareableHandle(&descriptor, handle,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  ASSERT_GE(descriptor, 0);
  const auto import = [](int fd, Handle* imported) {
    return cuMemImportFromShareableHandle(imported,
                                          reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  };
  Handle imported = 0;
  ASSERT_CU(import(descriptor, &imported));
  EXPECT_EQ(Charged(), kGranule);  // charged once
  // The second handle is a separate reference.
  ASSERT_CU(cuMemRelease(handle));
  EXPECT_EQ(Charged(), kGranule);
  const CUdeviceptr base = Reserve(kGranule);
  ASSERT_CU(cuMemMap(base, kGranule, 0, imported, 0));
  ASSERT_CU(cuMemRelease(imported));
  ASSERT_CU(cuMemUnmap(base, kGranule));
  // Only the descriptors are left, and each of them keeps the memory.
  const int copy = dup(descriptor);
  EXPECT_EQ(Charged(), kGranule);
  ASSERT_CU(import(copy, &imported));
  EXPECT_CU(cuMemRelease(imported));
  close(descriptor);
  EXPECT_EQ(Charged(), kGranule);
  close(copy);
  EXPECT_EQ(Charged(), 0u);
  EXPECT_EQ(import(descriptor, &imported), CUDA_ERROR_INVALID_VALUE);  // the memory is gone

  // Descriptors that are not exports of this driver.
  const int garbage = memfd_create("garbage", MFD_CLOEXEC), null = open("/dev/null", O_RDONLY);
  for (const int fd : {garbage, null, descriptor, -1, 1 << 30}) {
    EXPECT_EQ(import(fd, &imported), CUDA_ERROR_INVALID_VALUE) << fd;
  }
  close(garbage);
  close(null);

  CUmemAllocationProp properties = Properties();
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  Handle secret = 0;
  ASSERT_CU(cuMemCreate(&secret, kGranule, &properties, 0));
  EXPECT_EQ(cuMemExportToShareableHandle(&descriptor, secret,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemExportToShareableHandle(&descriptor, handle,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, PropertiesAndPointersAreReadBack) {
  const CUdeviceptr base = Reserve(4 * kGranule);
  const Handle handle = Create(2 * kGranule);
  CUmemAllocationProp properties{};
  ASSERT_CU(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
  EXPECT_EQ(properties.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(properties.location.id, 0);
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&properties, 12), CUDA_ERROR_INVALID_VALUE);

  ASSERT_CU(cuMemMap(base + kGranule, 2 * kGranule, 0, handle, 0));
  CUdeviceptr start = 0;
  size_t size = 0;
  EXPECT_CU(cuMemGetAddressRange(&start, &size, base + kGranule + 5));
  EXPECT_EQ(start, base + kGranule);
  EXPECT_EQ(size, 2 * kGranule);
  EXPECT_EQ(cuMemGetAddressRange(&start, &size, base), CUDA_ERROR_NOT_FOUND);
  const auto get = [&](auto value, CUpointer_attribute attribute, CUdeviceptr at) {
    EXPECT_CU(cuPointerGetAttribute(&value, attribute, at)) << attribute;
    return value;
  };
  const CUdeviceptr inside = base + kGranule + 5;
  EXPECT_EQ(get(0u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(get(context_, CU_POINTER_ATTRIBUTE_CONTEXT, inside), nullptr);
  EXPECT_EQ(get(CUdeviceptr{}, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), base);
  EXPECT_EQ(get(size_t{}, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), 4 * kGranule);
  EXPECT_EQ(get(CUdeviceptr{}, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside), base + kGranule);
  EXPECT_EQ(get(size_t{}, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside), 2 * kGranule);
  EXPECT_EQ(get(uint64_t{}, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside), 1u);
  EXPECT_EQ(get(0u, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside), 0u);
  EXPECT_TRUE(get(false, CU_POINTER_ATTRIBUTE_MAPPED, inside));
  EXPECT_FALSE(get(true, CU_POINTER_ATTRIBUTE_MAPPED, base));
  EXPECT_FALSE(get(true, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
  unsigned type;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, base),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(base + kGranule), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, SynchronousSetsAndCopiesOfASyncRegionWait) {
  CUdeviceptr a, b;
  ASSERT_CU(cuMemAlloc(&a, 64 * kMiB));
  ASSERT_CU(cuMemAlloc(&b, 64 * kMiB));
  uint64_t start = Now();
  ASSERT_CU(cuMemcpyDtoD(a, b, 64 * kMiB));
  EXPECT_EQ(Now(), start);
  ASSERT_CU(cuCtxSynchronize());
  unsigned on = 1, read = 0;
  ASSERT_CU(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
  ASSERT_CU(cuPointerGetAttribute(&read, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a + 5));
  EXPECT_EQ(read, 1u);
  start = Now();
  ASSERT_CU(cuMemcpyDtoD(a, b, 64 * kMiB));
  EXPECT_GT(Now(), start);
  EXPECT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, a),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuPointerSetAttribute(nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, InjectedFaultsReachIt) {
  char error[128];
  const CUmemAllocationProp properties = Properties();
  Handle handle;
  ASSERT_EQ(0, gpushare_sim_inject("oom after=1", error, sizeof(error))) << error;
  EXPECT_CU(cuMemCreate(&handle, kGranule, &properties, 0));
  EXPECT_EQ(cuMemCreate(&handle, kGranule, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(0, gpushare_sim_inject("clear", error, sizeof(error)));
  ASSERT_EQ(0, gpushare_sim_inject("error call=cuMemMap code=999 nth=1", error, sizeof(error)));
  const CUdeviceptr base = Reserve(kGranule);
  EXPECT_EQ(cuMemMap(base, kGranule, 0, handle, 0), CUDA_ERROR_UNKNOWN);
  EXPECT_CU(cuMemMap(base, kGranule, 0, handle, 0));
  EXPECT_EQ(Charged(), kGranule);
}

TEST_F(VirtualMemoryTest, TheHostCannotTouchIt) {
  const CUdeviceptr base = Reserve(kGranule);
  ASSERT_CU(cuMemMap(base, kGranule, 0, Create(kGranule), 0));
  ASSERT_CU(Allow(base, kGranule));
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(base) = 1, "");
}

// Compares random calls with a model of the mappings.
TEST_F(VirtualMemoryTest, RandomMappingsAddUp) {
  constexpr int kSlots = 16;
  std::mt19937 random(7);
  const CUdeviceptr base = Reserve(kSlots * kGranule);
  struct Made {
    Handle handle;
    bool held;
    int mapped;
    unsigned char value;  // the value of its first byte
  };
  std::vector<Made> made;
  std::vector<int> slots(kSlots, -1);
  size_t used = 0;
  for (int step = 0; step < 5000; ++step) {
    const size_t slot = random() % kSlots;
    const CUdeviceptr at = base + slot * kGranule;
    const size_t which = made.empty() ? 0 : random() % made.size();
    switch (random() % 5) {
      case 0:
        if (used >= 200) break;
        made.push_back({Create(kGranule), true, 0, 0});
        ++used;
        break;
      case 1: {
        if (made.empty()) break;
        const bool ok = made[which].held && slots[slot] < 0;
        ASSERT_EQ(cuMemMap(at, kGranule, 0, made[which].handle, 0) == CUDA_SUCCESS, ok);
        if (!ok) break;
        ASSERT_CU(Allow(at, kGranule));
        slots[slot] = static_cast<int>(which);
        ++made[which].mapped;
        break;
      }
      case 2: {
        ASSERT_EQ(cuMemUnmap(at, kGranule) == CUDA_SUCCESS, slots[slot] >= 0);
        if (slots[slot] < 0) break;
        Made& one = made[static_cast<size_t>(slots[slot])];
        if (--one.mapped == 0 && !one.held) --used;
        slots[slot] = -1;
        break;
      }
      case 3:
        if (made.empty()) break;
        ASSERT_EQ(cuMemRelease(made[which].handle) == CUDA_SUCCESS, made[which].held);
        if (made[which].held && made[which].mapped == 0) --used;
        made[which].held = false;
        break;
      default: {
        if (slots[slot] < 0) break;
        Made& one = made[static_cast<size_t>(slots[slot])];
        unsigned char byte = 99;
        ASSERT_CU(cuMemcpyDtoH(&byte, at, 1));
        ASSERT_EQ(byte, one.value);
        one.value = static_cast<unsigned char>(random());
        ASSERT_CU(cuMemsetD8(at, one.value, 1));
        break;
      }
    }
    ASSERT_EQ(Charged(), used * kGranule);
  }
}

}  // namespace
}  // namespace gpushare::sim_test
