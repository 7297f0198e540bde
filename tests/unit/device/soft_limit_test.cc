// SPDX-License-Identifier: Apache-2.0
// Memory beyond the quota (`memory_cap`), with every strategy: how much may be borrowed, how it returns to its owner,
// and which tenants are asked for it.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "gpushare/placement.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Bytes kPiece = MiB(512);

// 7 GiB can be promised, and 1 GiB of them is promised to nobody.
class SoftLimitTest : public DeviceTest, public ::testing::WithParamInterface<int> {
 protected:
  struct Tenancy {
    VirtualDevice device;
    Allocator allocator;
    std::vector<Allocation> held = {};
    int asked = 0;

    VirtualDeviceStats stats() const { return Must(device.stats()); }
    // Allocates as many whole pieces as it can. Returns the refusal.
    absl::Status Fill() {
      for (;;) {
        absl::StatusOr<Allocation> piece = allocator.Allocate(kPiece);
        if (!piece.ok()) return piece.status();
        held.push_back(*std::move(piece));
      }
    }
    void GivesBack(std::vector<std::string>* order = nullptr, const char* name = "") {
      EXPECT_OK(device.OnReclaim([this, order, name](Bytes wanted) {
        ++asked;
        EXPECT_GT(wanted, Bytes(0));
        if (order != nullptr) order->push_back(name);
        if (held.empty()) return false;
        held.pop_back();
        return true;
      }));
    }
    // Unregisters the callback, which has this object's address.
    ~Tenancy() { static_cast<void>(device.OnReclaim(nullptr)); }
  };

  std::unique_ptr<Tenancy> Make(const std::string& name, std::string_view spec,
                                AllocatorOptions options = {}) {
    VirtualDevice device = MakeDevice(name, spec);
    options.strategy = static_cast<AllocationStrategy>(GetParam());
    Allocator allocator = Must(Allocator::Create(device, std::move(options)));
    return std::unique_ptr<Tenancy>(new Tenancy{std::move(device), std::move(allocator)});
  }
  bool pooled() const { return GetParam() != 0; }
};

TEST_P(SoftLimitTest, WhatOthersLeaveUnusedMayBeBorrowed) {
  const auto owner = Make("owner", "memory=4GiB");
  const auto borrower = Make("borrower", "memory=2GiB,memory_cap=5GiB");
  EXPECT_EQ(Must(borrower->device.memory()).total, GiB(5));
  EXPECT_EQ(Must(borrower->device.memory()).free, GiB(5));
  const absl::Status refused = borrower->Fill();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2 GiB of it are guaranteed ('memory')"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("raise 'memory_cap'"));
  EXPECT_EQ(borrower->held.size(), 10u);
  EXPECT_EQ(borrower->stats().memory.borrowed, GiB(3));
  EXPECT_EQ(borrower->stats().memory.limit, GiB(5));
  EXPECT_EQ(owner->stats().memory.lent, GiB(2));  // one of them was promised to nobody
  EXPECT_EQ(owner->stats().memory.used, Bytes(0));
  EXPECT_EQ(Must(owner->device.memory()).free, GiB(4));
  EXPECT_OK(owner->allocator.Allocate(GiB(2)).status());
  EXPECT_LE(UsedOnDevice(), GiB(7).count());
  borrower->held.clear();
  if (pooled()) {
    EXPECT_OK(borrower->allocator.Trim());
  }
  EXPECT_EQ(borrower->stats().memory.borrowed, Bytes(0));
  EXPECT_EQ(owner->stats().memory.lent, Bytes(0));
}

TEST_P(SoftLimitTest, AnOwnerGetsItsBytesAndTheLeastImportantIsAskedFirst) {
  std::vector<std::string> order;
  const auto owner = Make("owner", "memory=4GiB");
  const auto high = Make("high", "memory=1GiB,memory_cap=3GiB,priority=high");
  const auto low = Make("low", "memory=1GiB,memory_cap=3GiB,priority=low");
  EXPECT_FALSE(high->Fill().ok());
  EXPECT_FALSE(low->Fill().ok());
  high->GivesBack(&order, "high");
  low->GivesBack(&order, "low");
  // One GiB was promised to nobody, and one of the owner's is still unused.
  const Allocation first = Must(owner->allocator.Allocate(MiB(1536)));
  EXPECT_THAT(order, ElementsAre("low"));
  const Allocation rest = Must(owner->allocator.Allocate(MiB(2560)));
  EXPECT_EQ(low->stats().memory.borrowed, Bytes(0));
  EXPECT_EQ(order.front(), "low");
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end(), std::greater<>()));
  EXPECT_EQ(owner->stats().memory.used, GiB(4));
  EXPECT_EQ(owner->stats().memory.lent, Bytes(0));
  // The borrowers keep their guarantees.
  EXPECT_GE(low->held.size(), 2u);
  EXPECT_GE(high->held.size(), 2u);
}

TEST_P(SoftLimitTest, NobodyIsAskedWithinItsGuarantee) {
  const auto owner = Make("owner", "memory=4GiB");
  const auto within = Make("within", "memory=1GiB,memory_cap=3GiB,priority=low");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=6GiB");
  within->held.push_back(Must(within->allocator.Allocate(GiB(1))));
  EXPECT_FALSE(borrower->Fill().ok());
  within->GivesBack();
  borrower->GivesBack();
  const Allocation memory = Must(owner->allocator.Allocate(GiB(4)));
  EXPECT_EQ(within->asked, 0);
  EXPECT_GT(borrower->asked, 0);
}

TEST_P(SoftLimitTest, IdleMemoryOfPoolsGoesBeforeAnybodyIsAsked) {
  if (!pooled()) return;
  const auto owner = Make("owner", "memory=4GiB");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=6GiB");
  EXPECT_FALSE(borrower->Fill().ok());
  borrower->held.resize(2);
  borrower->GivesBack();
  const Allocation memory = Must(owner->allocator.Allocate(GiB(4)));
  EXPECT_EQ(borrower->asked, 0);
  EXPECT_LE(borrower->stats().memory.borrowed, GiB(2));  // the unpromised memory
}

TEST_P(SoftLimitTest, WithoutAnAnswerAnOwnerIsRefusedOrWaits) {
  const auto owner = Make("owner", "memory=4GiB");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=7GiB");
  EXPECT_FALSE(borrower->Fill().ok());
  const absl::Status refused = owner->allocator.Allocate(GiB(1)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("4 GiB of it are lent to others"));
  const absl::Duration began = runtime_->Now();
  const absl::Status late =
      owner->allocator.Allocate(GiB(1), {.timeout = absl::Milliseconds(20)}).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  // Lent memory that did not come back was not available.
  for (const absl::Status& each : {refused, late}) {
    const std::optional<ErrorDetail> detail = ErrorDetail::Of(each);
    ASSERT_TRUE(detail.has_value()) << each;
    EXPECT_LT(detail->left, detail->asked) << each;
  }
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - began), 20, 2);
  Thread thread = Must(runtime_->StartThread("frees", [&] {
    runtime_->SleepFor(absl::Milliseconds(10));
    borrower->held.resize(borrower->held.size() - 2);
    // It cannot be borrowed again while another tenant waits for it.
    if (!pooled()) {
      EXPECT_FALSE(borrower->allocator.Allocate(MiB(100)).ok());
    }
  }));
  const absl::Duration waits = runtime_->Now();
  EXPECT_OK(owner->allocator.Allocate(GiB(1), {.timeout = absl::Seconds(1)}).status());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - waits), 10, 3);
}

TEST_P(SoftLimitTest, AnOwnerGetsNoMoreThanIsPromised) {
  const auto owner = Make("owner", "memory=1GiB");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=7GiB");
  EXPECT_FALSE(borrower->Fill().ok());
  borrower->GivesBack();
  EXPECT_TRUE(absl::IsResourceExhausted(owner->allocator.Allocate(GiB(1) + MiB(1)).status()));
  EXPECT_EQ(borrower->asked, 0);
  EXPECT_OK(owner->allocator.Allocate(GiB(1)).status());
}

TEST_P(SoftLimitTest, WhatIsBorrowedIsStillThereToPromise) {
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=7GiB");
  EXPECT_FALSE(borrower->Fill().ok());
  EXPECT_EQ(borrower->stats().memory.borrowed, GiB(6));
  borrower->GivesBack();
  const auto late = Make("late", "memory=6GiB");
  EXPECT_EQ(late->stats().memory.lent, GiB(6));
  const Allocation memory = Must(late->allocator.Allocate(GiB(5)));
  EXPECT_LE(UsedOnDevice(), GiB(7).count());
}

TEST_P(SoftLimitTest, WhoGoesLeavesNothingBorrowedAndNothingLent) {
  auto owner = Make("owner", "memory=4GiB");
  auto borrower = Make("borrower", "memory=1GiB,memory_cap=7GiB");
  EXPECT_FALSE(borrower->Fill().ok());
  owner.reset();  // while 4 GiB are lent
  EXPECT_EQ(borrower->stats().memory.borrowed, GiB(6));
  std::vector<DevicePtr> left;
  for (Allocation& piece : borrower->held) left.push_back(piece.release());
  borrower.reset();
  // Memory within its quota is still held; memory that it had borrowed can be promised.
  EXPECT_FALSE(VirtualDevice::Create(*gpu_, MakeTenant("early"), "memory=7GiB").ok());
  EXPECT_OK(VirtualDevice::Create(*gpu_, MakeTenant("later"), "memory=6GiB").status());
  for (const DevicePtr piece : left) {
    EXPECT_EQ(gpushare_gpu_free(gpu_->handle(), piece.value()), GPUSHARE_OK);
  }
  const auto next = Make("next", "memory=7GiB");
  EXPECT_OK(next->allocator.Allocate(GiB(7)).status());
}

TEST_P(SoftLimitTest, LimitsAreResized) {
  const auto owner = Make("owner", "memory=4GiB");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=5GiB");
  EXPECT_FALSE(borrower->Fill().ok());
  EXPECT_EQ(borrower->stats().memory.borrowed, GiB(4));
  EXPECT_OK(owner->device.Resize("memory=2GiB"));
  EXPECT_OK(borrower->device.Resize("memory=4GiB"));
  EXPECT_EQ(borrower->stats().memory.borrowed, GiB(1));
  EXPECT_OK(borrower->device.Resize("memory_cap=6GiB"));
  EXPECT_OK(borrower->allocator.Allocate(kPiece).status());
  EXPECT_EQ(borrower->device.Resize("memory=7GiB").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(owner->device.Resize("memory_cap=6GiB").code(), absl::StatusCode::kFailedPrecondition);
  borrower->GivesBack();
  EXPECT_OK(owner->allocator.Allocate(GiB(2)).status());
  EXPECT_LE(UsedOnDevice(), GiB(7).count());
}

// Unpromised memory is lent, and then promised to a tenant that waits.
TEST_P(SoftLimitTest, AQuotaThatIsRaisedWhileItsTenantWaitsGivesNothingTwice) {
  const auto owner = Make("owner", "memory=2GiB");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=5GiB");
  EXPECT_FALSE(owner->Fill().ok());
  EXPECT_FALSE(borrower->Fill().ok());
  EXPECT_EQ(borrower->stats().memory.borrowed, GiB(4));
  absl::Duration served;
  Thread waits = Must(runtime_->StartThread("waits", [&] {
    EXPECT_OK(owner->allocator.Allocate(GiB(1), {.timeout = absl::Seconds(1)}).status());
    served = runtime_->Now();
  }));
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_OK(owner->device.Resize("memory=6GiB"));
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_LE(UsedOnDevice(), GiB(7).count());
  EXPECT_EQ(owner->stats().memory.lent, GiB(4));
  EXPECT_EQ(served, absl::ZeroDuration());
  const absl::Duration freed = runtime_->Now();
  borrower->held.resize(borrower->held.size() - 2);
  waits.Join();
  EXPECT_NEAR(absl::ToDoubleMilliseconds(served - freed), 0, 3);
  EXPECT_LE(UsedOnDevice(), GiB(7).count());
}

TEST_P(SoftLimitTest, AWaiterWhoseQuotaIsRaisedHasBorrowersAsked) {
  const auto owner = Make("owner", "memory=2GiB");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=5GiB");
  EXPECT_FALSE(owner->Fill().ok());
  EXPECT_FALSE(borrower->Fill().ok());
  borrower->GivesBack();
  Thread waits = Must(runtime_->StartThread("waits", [&] {
    EXPECT_OK(owner->allocator.Allocate(GiB(1), {.timeout = absl::Seconds(1)}).status());
  }));
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(borrower->asked, 0);
  EXPECT_OK(owner->device.Resize("memory=6GiB"));
  waits.Join();
  EXPECT_EQ(borrower->asked, 2);
}

TEST_P(SoftLimitTest, AQuotaThatIsLoweredWhileItIsLentCanBePromisedToOthers) {
  const auto owner = Make("owner", "memory=4GiB");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=7GiB");
  EXPECT_FALSE(borrower->Fill().ok());
  EXPECT_EQ(owner->stats().memory.lent, GiB(4));
  EXPECT_OK(owner->device.Resize("memory=1GiB"));
  EXPECT_EQ(owner->stats().memory.lent, GiB(1));
  EXPECT_EQ(Must(RoomOf(*gpu_)).memory_left, GiB(5));
  const auto late = Make("late", "memory=5GiB");
  EXPECT_EQ(late->stats().memory.lent, GiB(5));
  borrower->GivesBack();
  const Allocation memory = Must(late->allocator.Allocate(GiB(5)));
  EXPECT_EQ(borrower->stats().memory.borrowed, GiB(1));
  EXPECT_LE(UsedOnDevice(), GiB(7).count());
}

// Another request waits already; when it came, there was nothing to give back.
TEST_P(SoftLimitTest, AnOwnerBehindAnotherWaiterHasBorrowersAskedForBoth) {
  const auto owner = Make("owner", "memory=4GiB");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=7GiB");
  EXPECT_FALSE(borrower->Fill().ok());
  const auto waits = [&](Bytes bytes) {
    return Must(runtime_->StartThread("waits", [&, bytes] {
      const auto got = owner->allocator.Allocate(bytes, {.timeout = absl::Milliseconds(500)});
      EXPECT_OK(got.status());
      runtime_->SleepFor(absl::Milliseconds(50));
    }));
  };
  Thread first = waits(GiB(3));
  runtime_->SleepFor(absl::Milliseconds(5));
  borrower->GivesBack();
  Thread second = waits(GiB(1));
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(owner->stats().memory.used, GiB(4));
  EXPECT_EQ(borrower->stats().memory.borrowed, GiB(2));
  first.Join();
  second.Join();
}

// The request is smaller than the pool's growth for it.
TEST_P(SoftLimitTest, BorrowersAreAskedForWhatAPoolGrowsBy) {
  const auto owner = Make("owner", "memory=4GiB");
  const VirtualDevice borrower = MakeDevice("borrower", "memory=1GiB,memory_cap=7GiB");
  const Allocator direct = Must(Allocator::Create(borrower));
  std::vector<Allocation> held;
  for (int i = 0; i < 7 * 1024; ++i) held.push_back(Must(direct.Allocate(MiB(1))));
  // No more comes back than was asked for.
  EXPECT_OK(borrower.OnReclaim([&](Bytes wanted) {
    for (Bytes given; given < wanted && !held.empty(); given += MiB(1)) held.pop_back();
    return true;
  }));
  EXPECT_OK(owner->allocator.Allocate(KiB(1)).status());
  EXPECT_OK(owner->allocator.Allocate(GiB(1), {.timeout = absl::Seconds(1)}).status());
  EXPECT_LE(UsedOnDevice(), GiB(7).count());
  EXPECT_OK(borrower.OnReclaim(nullptr));
}

TEST_P(SoftLimitTest, ACallbackThatThrowsIsNotTheOwnersError) {
  const auto owner = Make("owner", "memory=4GiB");
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=7GiB");
  EXPECT_FALSE(borrower->Fill().ok());
  EXPECT_OK(borrower->device.OnReclaim([](Bytes) -> bool { throw std::string("no"); }));
  const absl::Status refused = owner->allocator.Allocate(GiB(1)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
}

TEST_P(SoftLimitTest, TheFunctionGoesWhenNobodyCallsItAnyMore) {
  const auto borrower = Make("borrower", "memory=1GiB,memory_cap=7GiB");
  const auto life = std::make_shared<int>();
  EXPECT_OK(borrower->device.OnReclaim([life](Bytes) { return false; }));
  EXPECT_EQ(life.use_count(), 2);
  EXPECT_OK(borrower->device.OnReclaim(nullptr));
  EXPECT_EQ(life.use_count(), 1);
}

std::string NameOf(const ::testing::TestParamInfo<int>& info) {
  constexpr const char* kNames[] = {"direct", "pool", "suballocating"};
  return kNames[info.param];
}
INSTANTIATE_TEST_SUITE_P(Strategies, SoftLimitTest, ::testing::Values(0, 1, 2), NameOf);

// ---- Pools of those without a quota ----

using UnpromisedTest = DeviceTest;

TEST_F(UnpromisedTest, IdleMemoryOfOthersWithoutAQuotaIsLookedAt) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  for (const auto strategy : {AllocationStrategy::kSuballocating, AllocationStrategy::kPool}) {
    const Allocator pool = Must(Allocator::Create(a, {.strategy = strategy}));
    const Allocator direct = Must(Allocator::Create(b));
    EXPECT_OK(Must(pool.Allocate(GiB(4))).Free());
    EXPECT_EQ(Must(a.stats()).memory.used, GiB(4));
    EXPECT_OK(direct.Allocate(GiB(6)).status());
  }
}

TEST_F(UnpromisedTest, AWaiterSeesAPoolThatItsTenantMadeAfterwards) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB");
  const Allocator direct = Must(Allocator::Create(device));
  Allocation held = Must(direct.Allocate(MiB(400)));
  Thread thread = Must(runtime_->StartThread("pools", [&] {
    runtime_->SleepFor(absl::Milliseconds(5));
    const Allocator pool = Must(Allocator::Create(device, {.strategy = AllocationStrategy::kPool}));
    const Stream stream = Must(Stream::Create(device));
    Allocation memory = Must(pool.Allocate(MiB(400), stream));
    EXPECT_OK(held.Free());
    EXPECT_OK(memory.Free());
    runtime_->SleepFor(absl::Milliseconds(20));
  }));
  const absl::Duration began = runtime_->Now();
  EXPECT_OK(direct.Allocate(GiB(1), {.timeout = absl::Seconds(1)}).status());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - began), 6, 3);
}

using GoneTest = StreamTest;

TEST_F(GoneTest, RoomAndResizeSeeWhatCameThroughAfterItsTenantWasGone) {
  const auto leave = [&](const std::string& name) {
    const VirtualDevice device = MakeDevice(name, "memory=3GiB");
    const Allocator pool = Must(Allocator::Create(device, {.strategy = AllocationStrategy::kPool}));
    const Stream stream = Must(Stream::Create(device));
    const DevicePtr memory = Must(pool.AllocateRaw(GiB(3), stream));
    EXPECT_OK(Spin(stream, absl::Milliseconds(1)));
    EXPECT_OK(pool.Free(memory, stream));
  };
  leave("a");
  EXPECT_EQ(Must(RoomOf(*gpu_)).memory_left, GiB(4));
  runtime_->SleepFor(absl::Milliseconds(2));
  EXPECT_EQ(Must(RoomOf(*gpu_)).memory_left, GiB(7));
  const VirtualDevice other = MakeDevice("other", "memory=4GiB");
  leave("b");
  EXPECT_FALSE(other.Resize("memory=7GiB").ok());
  runtime_->SleepFor(absl::Milliseconds(2));
  EXPECT_OK(other.Resize("memory=7GiB"));
}

}  // namespace
}  // namespace gpushare
