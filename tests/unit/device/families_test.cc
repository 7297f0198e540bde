// SPDX-License-Identifier: Apache-2.0
// Tenants with a parent: budgets within budgets.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpushare/placement.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FamiliesTest : public StreamTest {
 protected:
  Tenant MakeChild(const std::string& name, const Tenant& parent) {
    return Must(Tenant::Create(*runtime_, {.name = name, .parent = &parent}));
  }
  absl::StatusOr<VirtualDevice> TryChild(const std::string& name, const Tenant& parent,
                                         std::string_view spec) {
    const Tenant tenant = MakeChild(name, parent);  // the virtual device keeps the tenant alive
    return VirtualDevice::Create(*gpu_, tenant, spec);
  }
  VirtualDevice MakeChildDevice(const std::string& name, const Tenant& parent,
                                std::string_view spec) {
    return Must(TryChild(name, parent, spec));
  }
  static void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                            const std::string& why) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }
};

// ---- Which tenants may be parents

TEST_F(FamiliesTest, AParentGoesAfterItsChildren) {
  Tenant team = MakeTenant("team");
  std::optional<Tenant> b = MakeChild("b", team), a = MakeChild("a", team);
  const gpushare_tenant handle = team.handle();
  EXPECT_EQ(gpushare_tenant_destroy(handle), GPUSHARE_FAILED_PRECONDITION);
  EXPECT_THAT(std::string(gpushare_last_message()),
              HasSubstr("tenant 'team' is the parent of 'a', 'b'; destroy these first"));
  EXPECT_EQ(Must(team.name()), "team");  // it is as it was
  b.reset();
  EXPECT_EQ(gpushare_tenant_destroy(handle), GPUSHARE_FAILED_PRECONDITION);
  EXPECT_THAT(std::string(gpushare_last_message()), HasSubstr("the parent of 'a'; "));
  a.reset();
}

TEST_F(FamiliesTest, AChildsVirtualDeviceKeepsItsParents) {
  const Tenant team = MakeTenant("team");
  std::optional<VirtualDevice> all = Must(VirtualDevice::Create(*gpu_, team, "memory=2GiB"));
  const Tenant tenant = MakeChild("child", team);
  std::optional<VirtualDevice> child = Must(VirtualDevice::Create(*gpu_, tenant, "memory=1GiB"));
  all.reset();
  DevicePtr held{};
  {
    const TenantScope scope(tenant);
    held = Must(gpu_->Allocate(MiB(512)));
  }
  EXPECT_EQ(Must(RoomOf(*gpu_)).memory_left, GiB(5));
  child.reset();  // the remaining handles keep the books and nothing else
  EXPECT_EQ(Must(RoomOf(*gpu_)).memory_left, GiB(7) - MiB(512));
  EXPECT_OK(gpu_->Free(held));
  EXPECT_EQ(Must(RoomOf(*gpu_)).memory_left, GiB(7));
  EXPECT_EQ(UsedOnDevice(), 0u);
}

TEST_F(FamiliesTest, WhatNobodyFreedGoesWithTheGpu) {
  const Tenant team = MakeTenant("team");
  std::optional<VirtualDevice> all = Must(VirtualDevice::Create(*gpu_, team, "memory=2GiB"));
  const Tenant child_tenant = MakeChild("child", team);
  std::optional<VirtualDevice> child = Must(VirtualDevice::Create(*gpu_, child_tenant, ""));
  const TenantScope scope(child_tenant);
  EXPECT_OK(gpu_->Allocate(MiB(512)).status());
  child.reset();
  all.reset();
}

TEST_F(FamiliesTest, WhatIsNotOfferedIsRefusedWithAReason) {
  using absl::StatusCode;
  const Tenant team = MakeTenant("team");
  ExpectRefused(TryChild("a", team, "").status(), StatusCode::kFailedPrecondition,
                "its parent 'team' has no virtual device there; create that one first");
  {
    const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "weight=2"));
    ExpectRefused(TryChild("a", team, "memory=1GiB").status(), StatusCode::kFailedPrecondition,
                  "has no memory quota there");
  }
  {
    const VirtualDevice all =
        Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB,compute=50%,isolation=green"));
    ExpectRefused(TryChild("a", team, "").status(), StatusCode::kUnimplemented,
                  "isolations green and process");
  }
  const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB,compute=50%"));
  ExpectRefused(TryChild("a", team, "compute=10%,isolation=green").status(),
                StatusCode::kUnimplemented, "isolations green and process");
  ExpectRefused(TryChild("a", team, "memory=1GiB,memory_cap=2GiB").status(),
                StatusCode::kUnimplemented, "'memory_cap'");
  ExpectRefused(TryChild("a", team, "priority=high").status(), StatusCode::kInvalidArgument,
                "high given, but its parent 'team' is normal");
  ExpectRefused(TryChild("a", team, "priority=low,compute=10%").status(),
                StatusCode::kInvalidArgument,
                "'guarantee': 10% at priority low given, but its parent 'team' is normal");
  const Tenant nobodys = Must(Tenant::Default(*runtime_));
  ExpectRefused(Tenant::Create(*runtime_, {.name = "a", .parent = &nobodys}).status(),
                StatusCode::kInvalidArgument, "the default tenant cannot be its parent");
  const VirtualDevice a = MakeChildDevice("a", team, "compute=30%");
  ExpectRefused(TryChild("b", team, "compute=30%").status(), StatusCode::kResourceExhausted,
                "20% left of the 50% of its parent 'team' (30% promised to its other children)");
  ExpectRefused(all.Resize("compute=20%"), StatusCode::kFailedPrecondition,
                "30% are promised to its children");
  ExpectRefused(all.Resize("priority=low"), StatusCode::kFailedPrecondition,
                "low given, but its child 'a' is normal");
  ExpectRefused(all.Resize("priority=high"), StatusCode::kFailedPrecondition,
                "its child 'a' has a guarantee at priority normal");
  EXPECT_OK(a.Resize("compute=50%"));
  ExpectRefused(a.Resize("compute=51%"), StatusCode::kResourceExhausted, "left of the 50%");
  EXPECT_OK(a.Resize("compute=10%"));
  EXPECT_OK(all.Resize("compute=20%"));
  EXPECT_NEAR(Must(RoomOf(*gpu_)).guarantee_left.fraction(), 0.8,
              1e-9);  // the parent's entitlement covers all of it
}

TEST_F(FamiliesTest, APriorityThatNobodyGaveIsTheParents) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB,priority=low"));
  const VirtualDevice child = MakeChildDevice("child", team, "");
  EXPECT_EQ(Must(child.stats()).priority, Priority::kLow);
  EXPECT_EQ(Must(child.stats()).parent, "team");
  EXPECT_EQ(Must(all.stats()).parent, "");
}

// ---- Memory

class FamilyMemoryTest : public FamiliesTest, public ::testing::WithParamInterface<int> {
 protected:
  std::string config() const override { return StreamTest::config() + ",wake_sleep=0,wake_spin=0"; }
  Allocator Of(const VirtualDevice& device, AllocatorOptions options = {}) const {
    options.strategy = static_cast<AllocationStrategy>(GetParam());
    return Must(Allocator::Create(device, std::move(options)));
  }
};

TEST_P(FamilyMemoryTest, BothBudgetsHoldAndTheRefusalSaysWhichWasFull) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "memory=2GiB"));
  const VirtualDevice a = MakeChildDevice("a", team, "memory=1536MiB"),
                      b = MakeChildDevice("b", team, "memory=1536MiB");
  const Allocator of_a = Of(a), of_b = Of(b);
  std::vector<Allocation> held;
  for (int i = 0; i < 3; ++i) held.push_back(Must(of_a.Allocate(MiB(512))));
  EXPECT_EQ(Must(a.memory()).total, MiB(1536));
  EXPECT_EQ(Must(a.memory()).free, Bytes(0));
  EXPECT_EQ(Must(b.memory()).total, MiB(1536));
  EXPECT_EQ(Must(b.memory()).free, MiB(512));
  EXPECT_EQ(Must(all.memory()).free, MiB(512));
  const absl::Status own = of_a.Allocate(MiB(512)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(own)) << own;
  EXPECT_THAT(
      std::string(own.message()),
      AllOf(HasSubstr("tenant 'a' on GPU 0: 512 MiB asked, 0 B left of its own memory quota of "
                      "1.5 GiB within its parent 'team'"),
            HasSubstr("raise 'memory' of its virtual device")));
  EXPECT_EQ(ErrorDetail::Of(own)->tenant, "a");
  EXPECT_EQ(ErrorDetail::Of(own)->total, MiB(1536).count());
  const absl::Status parents = of_b.Allocate(GiB(1)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(parents)) << parents;
  EXPECT_THAT(
      std::string(parents.message()),
      AllOf(HasSubstr("tenant 'b' on GPU 0: 1 GiB asked, 512 MiB left of the memory quota of its "
                      "parent 'team', 2 GiB for all of its children"),
            HasSubstr("raise 'memory' of its parent's virtual device")));
  EXPECT_EQ(ErrorDetail::Of(parents)->tenant, "team");
  EXPECT_EQ(ErrorDetail::Of(parents)->left, MiB(512).count());
  held.push_back(Must(of_b.Allocate(MiB(512))));
  EXPECT_EQ(Must(all.stats()).memory.used, GiB(2));
  EXPECT_EQ(Must(a.stats()).memory.used, MiB(1536));
  EXPECT_EQ(Must(b.stats()).memory.used, MiB(512));
  EXPECT_EQ(Must(all.stats()).memory.allocations, 0u);
  EXPECT_FALSE(Of(all).Allocate(MiB(2)).ok());  // the child's own quota applies as well
  EXPECT_LE(UsedOnDevice(), GiB(2).count());
  held.clear();
  EXPECT_OK(
      Of(all).Allocate(GiB(2)).status());  // it may use the idle memory in its children's pools
}

TEST_P(FamilyMemoryTest, WhatIsIdleInASiblingsPoolIsThere) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB"));
  const VirtualDevice a = MakeChildDevice("a", team, ""), b = MakeChildDevice("b", team, "");
  const Allocator of_a = Of(a), of_b = Of(b);
  for (int i = 0; i < 3; ++i) {
    { const Allocation whole = Must(of_a.Allocate(GiB(1))); }
    { const Allocation whole = Must(of_b.Allocate(GiB(1))); }
  }
}

TEST_P(FamilyMemoryTest, WhoWaitsIsServedByASiblingAndByTheParent) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB"));
  const VirtualDevice a = MakeChildDevice("a", team, ""), b = MakeChildDevice("b", team, "");
  const Allocator of_all = Of(all), of_a = Of(a), of_b = Of(b);
  const auto wait_while = [&](const Allocator& waits, Allocation held, const char* what) {
    SCOPED_TRACE(what);
    absl::Duration served;
    Thread waiter = Must(runtime_->StartThread("waiter", [&] {
      EXPECT_OK(waits.Allocate(MiB(768), {.timeout = absl::Seconds(1)}).status());
      served = runtime_->Now();
    }));
    runtime_->SleepFor(absl::Microseconds(2'700));
    EXPECT_EQ(served, absl::ZeroDuration());
    const absl::Duration freed = runtime_->Now();
    EXPECT_OK(held.Free());
    waiter.Join();
    EXPECT_LE(served - freed, absl::Microseconds(300));
  };
  wait_while(of_b, Must(of_a.Allocate(MiB(512))), "a sibling frees");
  wait_while(of_b, Must(of_all.Allocate(MiB(512))), "the parent frees");
  wait_while(of_all, Must(of_b.Allocate(MiB(512))), "a child frees");
}

TEST_P(FamilyMemoryTest, AParentThatIsResizedBelowItsUseTakesNothingAway) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "memory=2GiB"));
  const VirtualDevice a = MakeChildDevice("a", team, "memory=2GiB"),
                      b = MakeChildDevice("b", team, "memory=2GiB");
  const Allocator of_a = Of(a), of_b = Of(b, {.over_quota = OverQuota::kWait});
  std::vector<Allocation> held;
  for (int i = 0; i < 3; ++i) held.push_back(Must(of_a.Allocate(MiB(512))));
  absl::Status told;
  Thread waiter = Must(runtime_->StartThread(
      "waiter", [&] { told = of_b.Allocate(MiB(1536), {.timeout = absl::Seconds(10)}).status(); }));
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_OK(all.Resize("memory=1GiB"));
  waiter.Join();  // no free can serve it any more
  EXPECT_TRUE(absl::IsResourceExhausted(told)) << told;
  EXPECT_THAT(std::string(told.message()),
              HasSubstr("the memory quota of its parent 'team', 1 GiB"));
  EXPECT_EQ(Must(b.memory()).total, GiB(1));
  EXPECT_EQ(Must(b.memory()).free, Bytes(0));
  EXPECT_EQ(Must(all.stats()).memory.used, MiB(1536));
  EXPECT_FALSE(Of(a).Allocate(MiB(2)).ok());
  held.clear();
  EXPECT_OK(Of(b).Allocate(GiB(1)).status());
  EXPECT_OK(all.Resize("memory=2GiB"));
  EXPECT_EQ(Must(a.memory()).total, GiB(2));
  EXPECT_OK(a.Resize("memory=512MiB"));
  EXPECT_EQ(Must(a.memory()).total, MiB(512));
}

TEST_P(FamilyMemoryTest, WhatAParentBorrowsItsChildrenHoldAndAreAskedFor) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice owner = MakeDevice("owner", "memory=5GiB");
  const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB,memory_cap=4GiB"));
  const VirtualDevice a = MakeChildDevice("a", team, "memory=2GiB"),
                      b = MakeChildDevice("b", team, "");
  const Allocator of_owner = Of(owner), of_a = Of(a), of_b = Of(b);
  std::vector<Allocation> held;
  for (int i = 0; i < 4; ++i) held.push_back(Must(of_a.Allocate(MiB(512))));
  for (int i = 0; i < 4; ++i) held.push_back(Must(of_b.Allocate(MiB(512))));
  EXPECT_EQ(Must(all.stats()).memory.borrowed, GiB(3));
  EXPECT_EQ(Must(owner.stats()).memory.lent, GiB(2));  // one more GiB is promised to nobody
  const absl::Status refused = of_b.Allocate(MiB(512)).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("raise 'memory_cap' of its parent's"));
  // The borrowers give nothing back.
  EXPECT_FALSE(of_owner.Allocate(GiB(4)).ok());
  int asked = 0;
  ASSERT_OK(b.OnReclaim([&](Bytes) {
    ++asked;
    if (held.size() <= 4) return false;
    held.pop_back();
    return true;
  }));
  EXPECT_OK(of_owner.Allocate(GiB(4)).status());
  EXPECT_GE(asked, 2);
  EXPECT_OK(b.OnReclaim(nullptr));
  held.clear();
  if (GetParam() != 0) {
    for (const Allocator* each : {&of_a, &of_b}) EXPECT_OK(each->Trim());
  }
  EXPECT_EQ(Must(all.stats()).memory.borrowed, Bytes(0));
  EXPECT_EQ(Must(owner.stats()).memory.lent, Bytes(0));
  EXPECT_EQ(Must(all.stats()).memory.used, Bytes(0));
}

TEST_P(FamilyMemoryTest, AnOwnersChildGetsBackWhatItsParentHasLent) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice borrower = MakeDevice("borrower", "memory=512MiB,memory_cap=7GiB");
  const VirtualDevice all = Must(VirtualDevice::Create(*gpu_, team, "memory=6GiB"));
  const VirtualDevice a = MakeChildDevice("a", team, "memory=4GiB");
  const Allocator of_borrower = Of(borrower), of_a = Of(a);
  std::vector<Allocation> held;
  for (int i = 0; i < 14; ++i) held.push_back(Must(of_borrower.Allocate(MiB(512))));
  EXPECT_EQ(Must(all.stats()).memory.lent, GiB(6));
  ASSERT_OK(borrower.OnReclaim([&](Bytes) {
    if (held.empty()) return false;
    held.pop_back();
    return true;
  }));
  EXPECT_OK(of_a.Allocate(GiB(3)).status());
  // If its own quota is full, no borrower is asked.
  const size_t left = held.size();
  EXPECT_FALSE(of_a.Allocate(MiB(4100)).ok());
  EXPECT_EQ(held.size(), left);
  EXPECT_OK(borrower.OnReclaim(nullptr));
}

INSTANTIATE_TEST_SUITE_P(Strategies, FamilyMemoryTest, ::testing::Range(0, 3));

// ---- Time and copies

TEST_F(FamiliesTest, ChildrenDivideTheTimeThatTheirParentIsEntitledTo) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice all =
      Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB,compute=60%,weight=0.01"));
  const VirtualDevice a = MakeChildDevice("a", team, "weight=2"),
                      b = MakeChildDevice("b", team, ""), other = MakeDevice("other", "weight=100");
  const VirtualDevice* const each[] = {&a, &b, &other};
  const absl::Duration end = runtime_->Now() + absl::Seconds(2);
  std::vector<Thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.push_back(Must(runtime_->StartThread("t" + std::to_string(i), [&, i] {
      const Stream stream = Must(Stream::Create(*each[i]));
      while (runtime_->Now() < end) {
        for (int k = 0; k < 64; ++k) EXPECT_OK(Spin(stream, absl::Microseconds(50 * (i + 1))));
      }
      EXPECT_OK(stream.Synchronize());
    })));
  }
  runtime_->SleepFor(absl::Seconds(1) / 2);
  std::vector<absl::Duration> before, used;
  for (const VirtualDevice* device : each) before.push_back(Must(device->stats()).compute.measured);
  runtime_->SleepFor(absl::Seconds(1));
  for (int i = 0; i < 3; ++i) {
    used.push_back(Must(each[i]->stats()).compute.measured - before[static_cast<size_t>(i)]);
  }
  for (Thread& thread : threads) thread.Join();
  EXPECT_NEAR(absl::ToDoubleSeconds(used[0]), 0.4, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(used[1]), 0.2, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(used[2]), 0.4, 0.01);
}

TEST_F(FamiliesTest, TheParentsCapAndCopyRateBoundItsChildren) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice all =
      Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB,cap=30%,h2d=100MB/s"));
  const VirtualDevice a = MakeChildDevice("a", team, ""), b = MakeChildDevice("b", team, "");
  const absl::Duration end = runtime_->Now() + absl::Seconds(1);
  std::vector<Thread> threads;
  for (const VirtualDevice* device : {&a, &b}) {
    threads.push_back(Must(runtime_->StartThread("t", [&, device] {
      const Stream stream = Must(Stream::Create(*device));
      while (runtime_->Now() < end) EXPECT_OK(Spin(stream, absl::Microseconds(100)));
      EXPECT_OK(stream.Synchronize());
    })));
  }
  for (Thread& thread : threads) thread.Join();
  const absl::Duration used = Must(a.stats()).compute.measured + Must(b.stats()).compute.measured;
  EXPECT_NEAR(absl::ToDoubleSeconds(used), 0.3, 0.015);
  EXPECT_OK(all.Resize("cap=100%"));

  std::vector<std::byte> host(MiB(10).count());
  const absl::Duration began = runtime_->Now();
  threads.clear();
  for (const VirtualDevice* device : {&a, &b}) {
    threads.push_back(Must(runtime_->StartThread("t", [&, device] {
      const Stream stream = Must(Stream::Create(*device));
      const Allocation to = Must(Must(Allocator::Create(*device)).Allocate(MiB(10)));
      for (int i = 0; i < 5; ++i) {
        EXPECT_OK(stream.CopyToDevice(to.pointer(), host.data(), MiB(10)));
      }
      EXPECT_OK(stream.Synchronize());
    })));
  }
  for (Thread& thread : threads) thread.Join();
  // 105 MB at 100 MB/s; the last piece leaves a debt.
  EXPECT_NEAR(absl::ToDoubleSeconds(runtime_->Now() - began), 1.0, 0.05);
}

}  // namespace
}  // namespace gpushare
