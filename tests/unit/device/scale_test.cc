// SPDX-License-Identifier: Apache-2.0
// Many virtual devices on one GPU: the books stay exact. bench/scale measures their cost.
#include <string>
#include <utility>
#include <vector>

#include "device/share/admission.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

class ScaleTest : public DeviceTest {};

// 7 GiB can be promised: 7168 quotas of 1 MiB and not one more, however often they come and go.
TEST_F(ScaleTest, ThePromisesOfThousandsAddUpToTheByte) {
  for (int round = 0; round < 2; ++round) {
    std::vector<VirtualDevice> devices;
    for (int i = 0; i < 7168; ++i) {
      devices.push_back(MakeDevice("t" + std::to_string(i), "memory=1MiB"));
    }
    EXPECT_EQ(Must(gpu_->Probe()).memory_promised, GiB(7));
    const Tenant late = MakeTenant("late");
    const absl::Status refused = VirtualDevice::Create(*gpu_, late, "memory=1MiB").status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    // Removing one from the middle makes room for another.
    devices.erase(devices.begin() + 3000);
    EXPECT_OK(VirtualDevice::Create(*gpu_, late, "memory=1MiB").status());
  }
  EXPECT_EQ(Must(gpu_->Probe()).memory_promised, Bytes(0));
}

TEST_F(ScaleTest, GuaranteesThatComeAndGoDoNotDrift) {
  device::Admission books(GiB(7).count());
  for (int round = 0; round < 100'000; ++round) {
    books.Remove(books.Add({.guarantee = 0.1 + round * 1e-7}));
  }
  EXPECT_EQ(books.guarantees(), 0);
  for (int i = 0; i < 3; ++i) books.Add({.guarantee = 1.0 / 3});
  EXPECT_NEAR(books.guarantees(), 1, 1e-11);
  EXPECT_FALSE(books.Check("late", 0, {.guarantee = 0.001}, 0).ok());
}

// Memory that a tenant holds above a reduced quota is given to nobody else. A tenant without a quota has what is
// left.
TEST_F(ScaleTest, MemoryAboveAShrunkQuotaStaysCountedUntilItIsFreed) {
  const VirtualDevice shrunk = MakeDevice("shrunk", "memory=4GiB");
  const Allocator memory = Must(Allocator::Create(shrunk));
  Allocation held = Must(memory.Allocate(GiB(3)));
  EXPECT_OK(shrunk.Resize("memory=1GiB"));
  const VirtualDevice other = MakeDevice("other", "memory=4GiB");
  const Tenant late = MakeTenant("late");
  const absl::Status refused = VirtualDevice::Create(*gpu_, late, "memory=1GiB").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("2 GiB in use without a quota"));
  EXPECT_OK(std::move(held).Free());
  EXPECT_OK(VirtualDevice::Create(*gpu_, late, "memory=2GiB").status());
}

TEST_F(ScaleTest, APointerNamesTheDeviceItIsChargedTo) {
  std::vector<VirtualDevice> devices;
  for (int i = 0; i < 50; ++i) {
    devices.push_back(MakeDevice("t" + std::to_string(i), "memory=100MiB"));
  }
  Allocator memory = Must(Allocator::Create(devices[30]));
  const Allocation held = Must(memory.Allocate(MiB(1)));
  gpushare_vdev owner = nullptr;
  uint64_t bytes = 0;
  ASSERT_EQ(gpushare_gpu_pointer(gpu_->handle(), held.pointer().value(), &bytes, &owner),
            GPUSHARE_OK);
  EXPECT_EQ(bytes, MiB(1).count());
  gpushare_vdev_stats stats = {};
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(gpushare_vdev_get_stats(owner, &stats), GPUSHARE_OK);
  EXPECT_STREQ(stats.tenant, "t30");
  EXPECT_EQ(gpushare_vdev_destroy(owner), GPUSHARE_OK);
}

}  // namespace
}  // namespace gpushare
