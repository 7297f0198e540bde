// SPDX-License-Identifier: Apache-2.0
// Multicast objects: teams, bindings, and writes that reach every device.
#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class MulticastTest : public SimTest {
 protected:
  using Handle = CUmemGenericAllocationHandle;

  void SetUp() override { Start(std::string(kPlain) + ",devices=2"); }
  static CUresult Try(unsigned devices, size_t size, Handle* handle) {
    CUmulticastObjectProp properties{};
    properties.numDevices = devices;
    properties.size = size;
    return cuMulticastCreate(handle, &properties);
  }
  static Handle Object(size_t size) {
    Handle handle = 0;
    EXPECT_CU(Try(2, size, &handle));
    EXPECT_CU(cuMulticastAddDevice(handle, 0));
    EXPECT_CU(cuMulticastAddDevice(handle, 1));
    return handle;
  }
  static Handle Memory(int device, size_t size) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    Handle handle = 0;
    EXPECT_CU(cuMemCreate(&handle, size, &properties, 0));
    return handle;
  }
  static CUdeviceptr Map(Handle handle, size_t size, int device) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(cuMemAddressReserve(&pointer, size, 0, 0, 0));
    EXPECT_CU(cuMemMap(pointer, size, 0, handle, 0));
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_CU(cuMemSetAccess(pointer, size, &access, 1));
    return pointer;
  }
};

TEST_F(MulticastTest, WhatIsWrittenReachesEveryDevice) {
  const Handle object = Object(2 * kGranule);
  const Handle first = Memory(0, 2 * kGranule), second = Memory(1, 3 * kGranule);
  ASSERT_CU(cuMulticastBindMem(object, 0, first, 0, 2 * kGranule, 0));
  ASSERT_CU(cuMulticastBindMem(object, 0, second, kGranule, kGranule, 0));
  ASSERT_CU(cuMulticastBindMem(object, kGranule, second, 0, kGranule, 0));
  const CUdeviceptr all = Map(object, 2 * kGranule, 0), one = Map(first, 2 * kGranule, 0);
  std::vector<unsigned char> out(kGranule);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<unsigned char>(i * 11 + i / 300);
  // Writes across the border between bindings, which are in reverse order on the second device.
  ASSERT_CU(cuMemcpyHtoD(all + kGranule / 2, out.data(), out.size()));
  ASSERT_CU(cuMemsetD32(all, 0x07070707, 4));
  std::vector<unsigned char> in(out.size());
  ASSERT_CU(cuMemcpyDtoH(in.data(), one + kGranule / 2, in.size()));
  EXPECT_EQ(in, out);
  CUcontext context;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context, 1));
  ASSERT_CU(cuCtxSetCurrent(context));
  const CUdeviceptr other = Map(second, 3 * kGranule, 1);
  ASSERT_CU(cuMemcpyDtoH(in.data(), other + kGranule + kGranule / 2, kGranule / 2));
  ASSERT_CU(cuMemcpyDtoH(in.data() + kGranule / 2, other, kGranule / 2));
  EXPECT_EQ(in, out);
  unsigned word = 0;
  ASSERT_CU(cuMemcpyDtoH(&word, other + kGranule, 4));
  EXPECT_EQ(word, 0x07070707u);
  ASSERT_CU(cuCtxSetCurrent(context_));
  // There is no single place to read from.
  EXPECT_EQ(cuMemcpyDtoH(in.data(), all, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(MulticastTest, OnlyTheMemoryIsCharged) {
  const uint64_t before = gpushare_sim_memory_used(0);
  const Handle object = Object(kGranule), memory = Memory(0, kGranule);
  EXPECT_EQ(gpushare_sim_memory_used(0) - before, kGranule);
  ASSERT_CU(cuMulticastBindMem(object, 0, memory, 0, kGranule, 0));
  ASSERT_CU(cuMemRelease(memory));
  EXPECT_EQ(gpushare_sim_memory_used(0) - before, kGranule);  // the binding keeps the memory
  const CUdeviceptr all = Map(object, kGranule, 0);
  ASSERT_CU(cuMemRelease(object));
  EXPECT_EQ(gpushare_sim_memory_used(0) - before, kGranule);  // so does the mapping
  ASSERT_CU(cuMemUnmap(all, kGranule));
  EXPECT_EQ(gpushare_sim_memory_used(0), before);
}

TEST_F(MulticastTest, BindingsEndOneByOne) {
  const Handle object = Object(2 * kGranule), memory = Memory(0, 2 * kGranule);
  const CUdeviceptr mapped = Map(memory, 2 * kGranule, 0);
  ASSERT_CU(cuMulticastBindAddr(object, 0, mapped + kGranule, kGranule, 0));
  EXPECT_EQ(cuMulticastBindMem(object, 0, memory, 0, kGranule, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastUnbind(object, 0, 0, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastUnbind(object, 1, 0, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastUnbind(object, 5, 0, kGranule), CUDA_ERROR_INVALID_DEVICE);
  ASSERT_CU(cuMulticastUnbind(object, 0, 0, kGranule));
  EXPECT_EQ(cuMulticastUnbind(object, 0, 0, kGranule), CUDA_ERROR_INVALID_VALUE);
  // A write faults if some device has no memory there.
  ASSERT_CU(cuMulticastBindMem(object, 0, memory, 0, kGranule, 0));
  const CUdeviceptr all = Map(object, 2 * kGranule, 0);
  EXPECT_CU(cuMemsetD8Async(all, 1, 1, nullptr));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(MulticastTest, CallsAreChecked) {
  Handle object = 0;
  EXPECT_EQ(Try(3, kGranule, &object), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(0, kGranule, &object), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(2, 0, &object), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(2, 1, &object), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Try(2, kGranule, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUmulticastObjectProp properties{};
  properties.numDevices = 2;
  size_t granularity = 0;
  ASSERT_CU(
      cuMulticastGetGranularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_RECOMMENDED));
  EXPECT_EQ(granularity, kGranule);
  int supported = 0;
  ASSERT_CU(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
  EXPECT_EQ(supported, 1);

  ASSERT_CU(Try(1, kGranule, &object));
  EXPECT_EQ(cuMulticastAddDevice(object, 2), CUDA_ERROR_INVALID_DEVICE);
  ASSERT_CU(cuMulticastAddDevice(object, 0));
  EXPECT_EQ(cuMulticastAddDevice(object, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastAddDevice(object, 1), CUDA_ERROR_INVALID_VALUE);  // the team is complete
  const Handle memory = Memory(0, kGranule), foreign = Memory(1, kGranule);
  EXPECT_EQ(cuMulticastAddDevice(memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(object, 0, foreign, 0, kGranule, 0), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMulticastBindMem(object, 0, memory, 0, 2 * kGranule, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(object, kGranule, memory, 0, kGranule, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(object, 0, memory, 0, 4096, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(object, 0, memory, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(object, 0, memory, 0, kGranule, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindMem(object, 0, object, 0, kGranule, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMulticastBindAddr(object, 0, kGranule, kGranule, 0), CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp read;
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&read, object), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MulticastTest, BindingWaitsForTheWholeTeam) {
  Handle object = 0;
  ASSERT_CU(Try(2, kGranule, &object));
  ASSERT_CU(cuMulticastAddDevice(object, 0));
  const Handle memory = Memory(0, kGranule);
  const uint64_t start = Now();
  SimThread second("the second device", [&] {
    gpushare_sim_spend(5000);
    EXPECT_CU(cuMulticastAddDevice(object, 1));
  });
  EXPECT_CU(cuMulticastBindMem(object, 0, memory, 0, kGranule, 0));
  EXPECT_EQ(Now() - start, 5000u);
}

TEST_F(MulticastTest, AnObjectReleasedDuringTheWaitIsNotBoundTo) {
  Handle object = 0;
  const uint64_t before = gpushare_sim_memory_used(0);
  ASSERT_CU(Try(2, kGranule, &object));
  ASSERT_CU(cuMulticastAddDevice(object, 0));
  const Handle memory = Memory(0, kGranule);
  SimThread second("releases", [&] {
    gpushare_sim_spend(5000);
    EXPECT_CU(cuMemRelease(memory));
    EXPECT_CU(cuMemRelease(object));
  });
  EXPECT_EQ(cuMulticastBindMem(object, 0, memory, 0, kGranule, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(gpushare_sim_memory_used(0), before);
}

}  // namespace
}  // namespace gpushare::sim_test
