// SPDX-License-Identifier: Apache-2.0
// Frees for which the host has no memory: nothing changes, and nothing is held for ever.
#include "tests/contract/failing_memory.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using work::FailingMemory;

class HostMemoryTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    create_ = runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate");
    destroy_ = runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2");
  }
  int (*create_)(CUstream_st**, unsigned) = nullptr;
  int (*destroy_)(CUstream_st*) = nullptr;
};

TEST_F(HostMemoryTest, AFreeOnAForeignStreamThatFailsHoldsNothing) {
  int failures = 0;
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    const Allocator allocator =
        Must(Allocator::Create(device, {.strategy = AllocationStrategy::kSuballocating}));
    for (int nth = 1, failed = 1; failed != 0; ++nth) {
      CUstream_st* native = nullptr;
      ASSERT_EQ(create_(&native, 1), 0);
      const DevicePtr pointer = Must(allocator.AllocateRaw(MiB(1), {.native = native}));
      const int before = FailingMemory::failed();
      gpushare_status code;
      {
        const FailingMemory fails(nth);
        code = gpushare_free_native(allocator.handle(), pointer.value(), native);
      }
      failed = FailingMemory::failed() - before;
      if (code != GPUSHARE_OK) {
        ++failures;
        EXPECT_EQ(code, GPUSHARE_RESOURCE_EXHAUSTED) << nth;
        // It is there still, and so is the way to free it.
        EXPECT_OK(allocator.FreeNative(pointer, native));
      }
      EXPECT_EQ(destroy_(native), 0);
      ASSERT_LT(nth, 1000);
    }
    EXPECT_EQ(Must(allocator.stats()).live, Bytes(0));
  }
  EXPECT_GE(failures, 2);
  // The virtual device is gone, and its tenant with it.
  EXPECT_OK(Tenant::Create(*runtime_, {.name = "a"}).status());
}

}  // namespace
}  // namespace gpushare
