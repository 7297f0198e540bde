// SPDX-License-Identifier: Apache-2.0
// The driver's stream-ordered pool of a virtual device: what the quota is charged with, when memory goes back,
// the order of streams, and how it ends. What every strategy does is in tests/contract.
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

class DriverPoolTest : public StreamTest {
 protected:
  std::string config() const override { return DeviceTest::config() + ",pool_granule=32MiB"; }
  Allocator MakePool(const VirtualDevice& device, AllocatorOptions options = {}) {
    options.strategy = AllocationStrategy::kPool;
    return Must(Allocator::Create(device, std::move(options)));
  }
  static Bytes Charged(const VirtualDevice& device) { return Must(device.stats()).memory.used; }
};

TEST_F(DriverPoolTest, TheQuotaIsChargedWithWhatThePoolGrowsBy) {
  const VirtualDevice device = MakeDevice("a", "memory=256MiB");
  const Allocator pool = MakePool(device);
  const uint64_t before = UsedOnDevice();
  const Stream stream = Must(Stream::Create(device));
  {
    const Allocation one = Must(pool.Allocate(MiB(3), stream)),
                     two = Must(pool.Allocate(MiB(20), stream));
    EXPECT_EQ(Charged(device), MiB(32));
    EXPECT_EQ(UsedOnDevice() - before, MiB(32).count());
    const Allocation three = Must(pool.Allocate(MiB(40), stream));
    EXPECT_EQ(Charged(device), Bytes(UsedOnDevice() - before));
    EXPECT_EQ(Must(pool.stats()).live, MiB(63));
    EXPECT_EQ(Must(pool.stats()).allocations, 3u);
  }
  ASSERT_OK(stream.Synchronize());
  EXPECT_EQ(Charged(device), Bytes(UsedOnDevice() - before));
  EXPECT_GT(Charged(device), Bytes(0));  // it is kept for the next
  EXPECT_OK(pool.Trim());
  EXPECT_EQ(Charged(device), Bytes(0));
  EXPECT_EQ(UsedOnDevice(), before);
}

TEST_F(DriverPoolTest, GrowthThatIsMoreThanIsLeftIsTakenBack) {
  const VirtualDevice device = MakeDevice("a", "memory=40MiB");
  const Allocator pool = MakePool(device);
  const uint64_t before = UsedOnDevice();
  const Stream stream = Must(Stream::Create(device));
  const Allocation one = Must(pool.Allocate(MiB(30), stream));
  EXPECT_EQ(Charged(device), MiB(32));
  const auto over = pool.Allocate(MiB(6), stream);  // 8 MiB are left, the pool grows by 32
  EXPECT_EQ(over.status().code(), absl::StatusCode::kResourceExhausted) << over.status();
  EXPECT_THAT(std::string(over.status().message()), HasSubstr("6 MiB asked, 8 MiB left"));
  EXPECT_EQ(Charged(device), MiB(32));
  EXPECT_EQ(UsedOnDevice() - before, MiB(32).count());
  const Allocation small = Must(pool.Allocate(MiB(2), stream));  // of what it has
}

TEST_F(DriverPoolTest, UnusedMemoryIsGivenUpForOthersOfTheTenant) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device), direct = Must(Allocator::Create(device));
  const Stream stream = Must(Stream::Create(device));
  EXPECT_OK(Must(pool.Allocate(MiB(60), stream)).Free());
  ASSERT_OK(stream.Synchronize());
  EXPECT_EQ(Charged(device), MiB(64));
  const Allocation memory = Must(direct.Allocate(MiB(60)));
  EXPECT_EQ(Charged(device), MiB(60));
  EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
}

TEST_F(DriverPoolTest, AWaiterIsServedByAFreeInThePool) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool =
      MakePool(device, {.over_quota = OverQuota::kWait, .timeout = absl::InfiniteDuration()});
  const Stream stream = Must(Stream::Create(device));
  const DevicePtr held = Must(pool.AllocateRaw(MiB(60), stream));
  Thread waiter = Must(
      runtime_->StartThread("waiter", [&] { EXPECT_OK(pool.Allocate(MiB(30), stream).status()); }));
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Must(device.stats()).memory.used, MiB(64));
  EXPECT_OK(pool.Free(held));
  const absl::Duration freed = runtime_->Now();
  waiter.Join();
  EXPECT_LE(runtime_->Now() - freed, absl::Milliseconds(1));
  EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
}

TEST_F(DriverPoolTest, AWaiterIsServedByAFreeThatWasUnderWayWhenItCame) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool =
      MakePool(device, {.over_quota = OverQuota::kWait, .timeout = absl::Milliseconds(100)});
  const Stream a = Must(Stream::Create(device)), b = Must(Stream::Create(device));
  const DevicePtr held = Must(pool.AllocateRaw(MiB(60), a));
  ASSERT_OK(Spin(a, absl::Milliseconds(10)));
  EXPECT_OK(pool.Free(held));
  const absl::Duration began = runtime_->Now();
  EXPECT_OK(pool.AllocateRaw(MiB(40), b).status());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - began), 10, 1.5);
  const absl::Duration again = runtime_->Now();
  EXPECT_EQ(pool.AllocateRaw(MiB(40), b).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - again), 100, 1);
  EXPECT_EQ(pool.AllocateRaw(MiB(65), b).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(DriverPoolTest, AFreeFollowsTheStreamThatIsGone) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  DevicePtr held;
  {
    const Stream gone = Must(Stream::Create(device));
    held = Must(pool.AllocateRaw(MiB(3), gone));
    ASSERT_OK(Spin(gone, absl::Milliseconds(10)));
  }
  EXPECT_OK(pool.Free(held));
  EXPECT_EQ(Must(pool.stats()).live, MiB(3));  // its last kernel still uses it
  runtime_->SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(Must(pool.stats()).live, Bytes(0));
}

TEST_F(DriverPoolTest, MemoryOutlivesTheAllocatorAndTheVirtualDevice) {
  const uint64_t before = UsedOnDevice();
  DevicePtr one;
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    one = Must(MakePool(device).AllocateRaw(MiB(3)));
  }
  EXPECT_EQ(UsedOnDevice() - before, MiB(32).count());
  EXPECT_OK(gpu_->Free(one));
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(UsedOnDevice(), before);
  EXPECT_FALSE(gpu_->Free(one).ok());
  MakeDevice("a", "memory=7GiB");
}

TEST_F(DriverPoolTest, AClosingGpuFreesWhatPoolsHold) {
  module_.reset();
  {
    const VirtualDevice device = MakeDevice("a", "memory=64MiB");
    EXPECT_TRUE(static_cast<bool>(Must(MakePool(device).AllocateRaw(MiB(3)))));
  }
  EXPECT_OK(gpu_->Close());
  EXPECT_EQ(UsedOnDevice(), 0u);
}

TEST_F(DriverPoolTest, ADriverWithoutPoolsSaysWhatElseThereIs) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  ASSERT_OK(Inject("error call=cuMemPoolCreate code=801"));
  const auto refused = Allocator::Create(device, {.strategy = AllocationStrategy::kPool});
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("use 'suballocating'"));
}

TEST_F(DriverPoolTest, OutOfMemoryOnTheDeviceIsToldApartFromTheQuota) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator pool = MakePool(device);
  ASSERT_OK(Inject("oom after=0"));
  const auto refused = pool.Allocate(MiB(3));
  ASSERT_OK(Inject("clear"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("within its quota"));
  EXPECT_EQ(Charged(device), Bytes(0));
  EXPECT_OK(pool.Allocate(MiB(3)).status());
}

}  // namespace
}  // namespace gpushare
