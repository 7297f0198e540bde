// SPDX-License-Identifier: Apache-2.0
// The memory that the process itself takes on a GPU, outside all quotas.
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

class OverheadTest : public StreamTest {
 protected:
  std::string config() const override {
    return StreamTest::config() + ",context_memory=300MiB,module_memory=5MiB";
  }
  MemoryOverhead Now() const { return Must(gpu_->Overhead()); }
};

TEST_F(OverheadTest, IsWhatTheDriverCountsBeyondWhatIsCharged) {
  MemoryOverhead now = Now();
  EXPECT_EQ(now.overhead, MiB(305));  // the primary context with a module
  EXPECT_EQ(now.by_driver, MiB(305));
  EXPECT_EQ(now.charged, Bytes(0));
  EXPECT_EQ(now.reserve, GiB(1));

  // Charged memory is not overhead, with any strategy, with or without a quota.
  const VirtualDevice quota = MakeDevice("quota", "memory=1GiB"), none = MakeDevice("none", "");
  const Allocator direct = Must(Allocator::Create(quota)), all = Must(Allocator::Create(none)),
                  pool = Must(
                      Allocator::Create(quota, {.strategy = AllocationStrategy::kSuballocating})),
                  driver = Must(Allocator::Create(quota, {.strategy = AllocationStrategy::kPool}));
  const DevicePtr held[] = {Must(direct.AllocateRaw(MiB(100))), Must(all.AllocateRaw(MiB(77))),
                            Must(pool.AllocateRaw(MiB(1))), Must(driver.AllocateRaw(MiB(3)))};
  now = Now();
  EXPECT_EQ(now.overhead, MiB(305));
  EXPECT_EQ(now.charged + now.overhead, now.by_driver);
  EXPECT_EQ(now.by_driver, Bytes(UsedOnDevice()));
  EXPECT_OK(direct.Free(held[0]));
  EXPECT_OK(all.Free(held[1]));
  EXPECT_OK(pool.Free(held[2]));
  EXPECT_OK(driver.Free(held[3]));

  // A tenant's own context is overhead too, and ends with it.
  {
    const VirtualDevice own = MakeDevice("own", "memory=1GiB,isolation=context");
    EXPECT_EQ(Now().overhead, MiB(605));
    const Module more = Must(Module::Load(*gpu_, kPtx));
    EXPECT_EQ(Now().overhead, MiB(610));
  }
  EXPECT_EQ(Now().overhead, MiB(305));
}

TEST_F(OverheadTest, OfAnotherGpuItIsItsOwn) {
  const Gpu other = Must(Gpu::Open(*runtime_, "1"));
  EXPECT_EQ(Must(other.Overhead()).overhead, MiB(300));
  EXPECT_EQ(Now().overhead, MiB(305));
}

// As in a separate PID namespace: NVML lists processes, but not the pid of this one.
TEST_F(OverheadTest, WhereNvmlDoesNotKnowTheProcessItSaysSo) {
  ASSERT_EQ(setenv("GPUSHARE_NVML", NVML_OF_535, 1), 0);
  const absl::StatusOr<MemoryOverhead> none = gpu_->Overhead();
  unsetenv("GPUSHARE_NVML");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(none.status().message()), ::testing::HasSubstr("gpushare list"));
  EXPECT_EQ(gpushare_gpu_get_overhead(gpu_->handle(), nullptr), GPUSHARE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace gpushare
