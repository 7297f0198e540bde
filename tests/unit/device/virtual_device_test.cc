// SPDX-License-Identifier: Apache-2.0
// Virtual devices: admission, limits, statistics. Allocation itself is in tests/contract.
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

using VirtualDeviceTest = DeviceTest;

TEST_F(VirtualDeviceTest, OneATenantAndGpu) {
  const Tenant tenant = MakeTenant("a");
  std::optional<VirtualDevice> first = Must(VirtualDevice::Create(*gpu_, tenant, "memory=1GiB"));
  EXPECT_EQ(VirtualDevice::Create(*gpu_, tenant, "memory=1GiB").status().code(),
            absl::StatusCode::kAlreadyExists);
  const Gpu other = Must(Gpu::Open(*runtime_, "1"));
  EXPECT_OK(VirtualDevice::Create(other, tenant, "memory=1GiB").status());
  first.reset();
  EXPECT_OK(VirtualDevice::Create(*gpu_, tenant, "memory=1GiB").status());
}

TEST_F(VirtualDeviceTest, AdmissionSaysWhatWouldFit) {
  const VirtualDevice a = MakeDevice("a", "memory=5GiB,compute=70%");
  const Tenant b = MakeTenant("b");
  const auto memory = VirtualDevice::Create(*gpu_, b, "memory=3GiB");
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(memory.status().message()),
              HasSubstr("3 GiB of memory asked, 2 GiB left of 7 GiB"));
  const auto detail = ErrorDetail::Of(memory.status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->limit, "memory");
  EXPECT_EQ(detail->tenant, "b");
  EXPECT_EQ(detail->left, GiB(2).count());
  const auto compute = VirtualDevice::Create(*gpu_, b, "memory=1GiB,compute=40%");
  EXPECT_EQ(compute.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(compute.status().message()), HasSubstr("30% left of the device"));
  EXPECT_EQ(ErrorDetail::Of(compute.status())->left, 300'000u);
  // Nothing was left half created.
  EXPECT_EQ(Must(Snapshot::Take(*runtime_)).devices.size(), 1u);
  EXPECT_OK(VirtualDevice::Create(*gpu_, b, "memory=2GiB,compute=30%").status());
}

TEST_F(VirtualDeviceTest, APolicyGivenAloneTakesTheGuaranteeInForce) {
  const VirtualDevice a = MakeDevice("a", "memory=1GiB,compute=30%");
  EXPECT_OK(a.Resize("policy=fixed-share"));
  EXPECT_EQ(Must(a.stats()).guarantee, Percent(30));
  EXPECT_EQ(Must(a.stats()).cap, Percent(30));
  const VirtualDevice b = MakeDevice("b", "memory=1GiB,weight=2");
  const absl::Status refused = b.Resize("policy=fixed-share");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("add one (compute=30%, say)"));
  EXPECT_OK(b.Resize("policy=fixed-share,compute=20%"));
  EXPECT_EQ(VirtualDevice::Create(*gpu_, MakeTenant("c"), "policy=fixed-share").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(VirtualDeviceTest, ResizeIsLiveAndWhole) {
  const VirtualDevice a = MakeDevice("a", "memory=2GiB,compute=30%");
  EXPECT_OK(a.Resize("memory=3GiB,cap=60%,h2d=1GB/s"));
  EXPECT_EQ(Must(a.spec()).ToString(), "memory=3GiB,compute=30%,cap=60%,h2d=1GB/s");
  EXPECT_EQ(Must(a.memory()).total, GiB(3));
  EXPECT_EQ(Must(a.stats()).cap, Percent(60));
  // A change that does not fit has no effect.
  EXPECT_FALSE(a.Resize("memory=8GiB,cap=50%").ok());
  EXPECT_FALSE(a.Resize("cap=20%,guarantee=30%").ok());
  EXPECT_EQ(Must(a.spec()).ToString(), "memory=3GiB,compute=30%,cap=60%,h2d=1GB/s");
  EXPECT_EQ(a.Resize("isolation=green").code(), absl::StatusCode::kFailedPrecondition);
  // A limit can be removed again, and a policy removes settings that contradict it.
  EXPECT_OK(a.Resize("h2d=none,policy=best-effort"));
  EXPECT_EQ(Must(a.spec()).ToString(), "memory=3GiB,cap=60%,h2d=none,policy=best-effort");
  EXPECT_EQ(Must(a.stats()).guarantee, Percent(0));
  EXPECT_EQ(a.Resize("compute=30%").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(VirtualDeviceTest, ShrinkingBelowUseTakesNothingAway) {
  const VirtualDevice a = MakeDevice("a", "memory=2GiB");
  const Allocator allocator = Must(Allocator::Create(a));
  Allocation held = Must(allocator.Allocate(MiB(1536)));
  EXPECT_OK(a.Resize("memory=1GiB"));
  EXPECT_EQ(Must(a.memory()).free, Bytes(0));
  EXPECT_EQ(Must(a.stats()).memory.used, MiB(1536));
  EXPECT_EQ(allocator.Allocate(Bytes(1)).status().code(), absl::StatusCode::kResourceExhausted);
  // The half GiB above the new quota is not promised to others while it is held.
  const Tenant b = MakeTenant("b");
  EXPECT_FALSE(VirtualDevice::Create(*gpu_, b, "memory=6GiB").ok());
  EXPECT_OK(held.Free());
  EXPECT_OK(VirtualDevice::Create(*gpu_, b, "memory=6GiB").status());
  EXPECT_OK(allocator.Allocate(GiB(1)).status());
}

TEST_F(VirtualDeviceTest, WithoutAQuotaItGetsWhatQuotasLeave) {
  const VirtualDevice quota = MakeDevice("quota", "memory=5GiB");
  const VirtualDevice free1 = MakeDevice("free1", ""), free2 = MakeDevice("free2", "");
  const Allocator a1 = Must(Allocator::Create(free1)), a2 = Must(Allocator::Create(free2));
  EXPECT_EQ(Must(free1.memory()).total, GiB(2));
  const Allocation first = Must(a1.Allocate(MiB(1536)));
  const auto second = a2.Allocate(GiB(1));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("512 MiB left of the memory that no quota promises"));
  // The quota still applies, and memory in use is not promised again.
  const Allocator own = Must(Allocator::Create(quota));
  EXPECT_OK(own.Allocate(GiB(5)).status());
  EXPECT_FALSE(quota.Resize("memory=6GiB").ok());
  EXPECT_EQ(free1.Resize("memory=1GiB").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(VirtualDeviceTest, MemoryOutlivesItsDeviceAndStaysCharged) {
  DevicePtr pointer;
  {
    const VirtualDevice a = MakeDevice("a", "memory=4GiB");
    pointer = Must(Must(Allocator::Create(a)).AllocateRaw(GiB(3)));
  }
  EXPECT_EQ(Must(Snapshot::Take(*runtime_)).devices.size(), 0u);
  const Tenant b = MakeTenant("b");
  EXPECT_FALSE(VirtualDevice::Create(*gpu_, b, "memory=5GiB").ok());
  EXPECT_OK(gpu_->Free(pointer));
  EXPECT_OK(VirtualDevice::Create(*gpu_, b, "memory=5GiB").status());
}

TEST_F(VirtualDeviceTest, AMemoryShareIsOfWhatCanBePromised) {
  const VirtualDevice a = MakeDevice("a", "memory=50%");
  EXPECT_EQ(Must(a.memory()).total, MiB(3584));
}

TEST_F(VirtualDeviceTest, TheDriversOwnRefusalIsTakenBack) {
  const VirtualDevice a = MakeDevice("a", "memory=4GiB");
  const Allocator allocator = Must(Allocator::Create(a));
  ASSERT_OK(Inject("oom after=0"));
  const auto refused = allocator.Allocate(GiB(1));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  const auto detail = ErrorDetail::Of(refused.status());
  EXPECT_EQ(detail->driver_result, 2);
  EXPECT_EQ(detail->limit, "device");
  EXPECT_EQ(Must(a.stats()).memory.used, Bytes(0));
  EXPECT_EQ(Must(a.stats()).memory.denied, 0u);
  ASSERT_OK(Inject("clear"));
  EXPECT_OK(allocator.Allocate(GiB(4)).status());
}

TEST_F(VirtualDeviceTest, SnapshotsHoldEveryDeviceAtOneInstant) {
  const Gpu other = Must(Gpu::Open(*runtime_, "1"));
  const Tenant b = MakeTenant("b");
  const VirtualDevice on_other =
      Must(VirtualDevice::Create(other, b, "memory=1GiB,weight=3,priority=high"));
  const VirtualDevice a = MakeDevice("a", "memory=2GiB,compute=25%");
  const Allocator allocator = Must(Allocator::Create(a));
  const Allocation memory = Must(allocator.Allocate(MiB(10)));
  EXPECT_FALSE(allocator.Allocate(GiB(3)).ok());
  const Snapshot snapshot = Must(Snapshot::Take(*runtime_));
  ASSERT_EQ(snapshot.devices.size(), 2u);
  EXPECT_EQ(snapshot.devices[0].time, snapshot.devices[1].time);
  const VirtualDeviceStats* stats = snapshot.Find("a");
  ASSERT_NE(stats, nullptr);
  EXPECT_EQ(stats->memory.limit, GiB(2));
  EXPECT_EQ(stats->memory.used, MiB(10));
  EXPECT_EQ(stats->memory.peak, MiB(10));
  EXPECT_EQ(stats->memory.denied, 1u);
  EXPECT_EQ(stats->memory.denied_bytes, GiB(3));
  EXPECT_EQ(stats->memory.allocations, 1u);
  EXPECT_EQ(stats->guarantee, Percent(25));
  ASSERT_NE(snapshot.Find("b", 1), nullptr);
  EXPECT_EQ(snapshot.Find("b", 1)->weight, 3);
  EXPECT_EQ(snapshot.Find("b", 1)->priority, Priority::kHigh);
  EXPECT_EQ(snapshot.Find("b", 0), nullptr);
}

TEST_F(VirtualDeviceTest, TheTenantsPriorityCountsWhereTheSpecGivesNone) {
  const Tenant low = Must(Tenant::Create(*runtime_, {.name = "low", .priority = Priority::kLow}));
  const VirtualDevice device = Must(VirtualDevice::Create(*gpu_, low, "memory=1GiB"));
  EXPECT_EQ(Must(device.stats()).priority, Priority::kLow);
  EXPECT_OK(device.Resize("priority=normal"));
  EXPECT_EQ(Must(device.stats()).priority, Priority::kNormal);
}

// The driver cannot change a stream's priority, so existing streams keep theirs.
TEST_F(VirtualDeviceTest, ANewPriorityIsThatOfStreamsMadeFromThenOn) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  auto* const priority_of = runtime_->Symbol<int(CUstream_st*, int*)>("cuStreamGetPriority");
  const auto priority = [&](const Stream& stream) {
    int of = 0;
    EXPECT_EQ(priority_of(Must(stream.native()), &of), 0);
    return of;
  };
  const Stream before = Must(Stream::Create(device));
  EXPECT_OK(device.Resize("priority=high"));
  const Stream after = Must(Stream::Create(device));
  EXPECT_LT(priority(after), priority(before));
  EXPECT_OK(device.Resize("priority=low"));
  EXPECT_EQ(priority(Must(Stream::Create(device))), priority(before));
}

TEST_F(VirtualDeviceTest, ManyComeAndGo) {
  for (int i = 0; i < 300; ++i) {
    const VirtualDevice device = MakeDevice("t" + std::to_string(i), "memory=7GiB,compute=100%");
    const Allocation memory = Must(Must(Allocator::Create(device)).Allocate(GiB(7)));
  }
  EXPECT_EQ(Must(gpu_->Probe()).memory_promised, Bytes(0));
}

}  // namespace
}  // namespace gpushare
