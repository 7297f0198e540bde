// SPDX-License-Identifier: Apache-2.0
// The contract of Allocator, run over every offered strategy and every behaviour over the quota. A new strategy adds
// its lines to kFlavours.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <tuple>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

constexpr Bytes kQuota = MiB(64);

struct Flavour {
  const char* name;
  AllocationStrategy strategy;
  OverQuota over_quota;
  Bytes page{0};  // in which the device hands out memory; 0: to the byte
};

class AllocatorContract : public DeviceTest, public ::testing::WithParamInterface<Flavour> {
 protected:
  std::string config() const override {
    return "sms=100,memory=1GiB,pool_granule=2MiB,page=" + std::to_string(GetParam().page.count()) +
           ",clock=" + std::string(wall_clock_ ? "wall" : "virtual");
  }
  explicit AllocatorContract(bool wall_clock = false) : wall_clock_(wall_clock) {}

  void SetUp() override {
    DeviceTest::SetUp();
    runtime_
        .reset();  // that runtime has 1 GiB of reserve; the next one has a reserve that leaves room
    gpu_.reset();
    leave_();
    ASSERT_EQ(reset_(), 0);
    runtime_.emplace(Must(
        Runtime::Create({.driver = "sim", .simulation = config(), .memory_reserve = MiB(512)})));
    runtime_->Symbol<decltype(gpushare_sim_thread_enter)>("gpushare_sim_thread_enter")("test");
    gpu_.emplace(Must(Gpu::Open(*runtime_, "0")));
    device_.emplace(MakeDevice("a", "memory=64MiB"));
    used_before_ = UsedOnDevice();
    allocator_.emplace(Must(Make()));
  }
  void TearDown() override {
    allocator_.reset();
    device_.reset();
    DeviceTest::TearDown();
  }

  absl::StatusOr<Allocator> Make() {
    AllocatorOptions options;
    options.strategy = GetParam().strategy;
    options.over_quota = GetParam().over_quota;
    options.timeout = absl::Milliseconds(50);
    if (options.over_quota == OverQuota::kReclaim) {
      options.reclaim = [](Bytes, Bytes) { return false; };
    }
    return Allocator::Create(*device_, std::move(options));
  }
  bool swappable() const { return GetParam().strategy == AllocationStrategy::kSwappable; }
  bool pages() const { return GetParam().page != Bytes(0); }
  bool pooled() const { return GetParam().strategy != AllocationStrategy::kDirect && !swappable(); }
  // The memory that the allocations take: from a pool in multiples of 512 bytes, whatever else the pool holds; swappable
  // memory in multiples of what the driver maps; direct memory of a device with pages in whole pages or, if it shares one, in
  // multiples of 512 bytes.
  Bytes Used() {
    return pooled() ? Must(allocator_->stats()).live : Must(device_->stats()).memory.used;
  }
  uint64_t Allocations() {
    return pooled() ? Must(allocator_->stats()).allocations
                    : Must(device_->stats()).memory.allocations;
  }
  Bytes Rounded(Bytes size) const {
    const Bytes page = GetParam().page;
    const uint64_t unit = swappable()                       ? MiB(2).count()
                          : pooled()                        ? 512
                          : !pages()                        ? 1
                          : size.count() > page.count() / 2 ? page.count()
                                                            : 512;
    return Bytes((size.count() + unit - 1) / unit * unit);
  }
  // Expects that neither the quota nor the device has anything in use.
  void ExpectAllGivenBack() {
    if (pooled()) {
      EXPECT_OK(allocator_->Trim());
    }
    EXPECT_EQ(Must(device_->stats()).memory.used, Bytes(0));
    EXPECT_EQ(UsedOnDevice(), used_before_);
  }
  // Expects the answer for an allocation that can never fit, or that does not fit before the timeout.
  void ExpectRefused(const absl::Status& status, bool could_fit) {
    const bool waits = GetParam().over_quota == OverQuota::kWait && could_fit;
    EXPECT_EQ(status.code(),
              waits ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kResourceExhausted)
        << status;
  }

  const bool wall_clock_;
  std::optional<VirtualDevice> device_;
  std::optional<Allocator> allocator_;
  uint64_t used_before_ = 0;
};

// Tests for the strategies with which each free reaches the driver.
class DirectContract : public AllocatorContract {};

TEST_P(AllocatorContract, AllocatesAndFreesAndTheBooksBalance) {
  Allocation memory = Must(allocator_->Allocate(Bytes(12345)));
  EXPECT_TRUE(static_cast<bool>(memory.pointer()));
  EXPECT_EQ(memory.size(), Bytes(12345));
  EXPECT_EQ(Used(), Rounded(Bytes(12345)));
  EXPECT_EQ(Allocations(), 1u);
  EXPECT_OK(memory.Free());
  EXPECT_OK(memory.Free());  // an allocation that is no longer owned: does nothing
  EXPECT_EQ(Used(), Bytes(0));
  EXPECT_EQ(Must(device_->stats()).memory.peak, pooled() ? MiB(2) : Rounded(Bytes(12345)));
  ExpectAllGivenBack();
}

TEST_P(AllocatorContract, ZeroBytesAreRefused) {
  EXPECT_EQ(allocator_->Allocate(Bytes(0)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Must(device_->stats()).memory.denied, 0u);
}

TEST_P(AllocatorContract, HugeSizesAreRefusedAtOnce) {
  const absl::Duration begin = runtime_->Now();
  for (const Bytes size :
       {Bytes(UINT64_MAX), Bytes(UINT64_MAX - 4095), Bytes(uint64_t{1} << 63), GiB(1024)}) {
    ExpectRefused(allocator_->Allocate(size).status(), /*could_fit=*/false);
  }
  EXPECT_LT(runtime_->Now() - begin, absl::Milliseconds(1));
  EXPECT_EQ(Used(), Bytes(0));
}

TEST_P(AllocatorContract, TheQuotaHoldsToTheByte) {
  const bool direct = GetParam().strategy == AllocationStrategy::kDirect;
  const Bytes last_size = direct && pages() ? GetParam().page - Bytes(1) : Bytes(1);
  const Allocation all = Must(allocator_->Allocate(kQuota - Rounded(last_size)));
  const Allocation last = Must(allocator_->Allocate(last_size));
  const auto over = allocator_->Allocate(Bytes(1));
  ExpectRefused(over.status(), /*could_fit=*/true);
  const uint64_t asked =
      direct || GetParam().strategy == AllocationStrategy::kPool ? 1 : Rounded(Bytes(1)).count();
  EXPECT_THAT(std::string(over.status().message()),
              HasSubstr((swappable() ? "2 MiB" : std::to_string(asked) + " B") +
                        " asked, 0 B left of its memory quota of 64 MiB"));
  const auto detail = ErrorDetail::Of(over.status());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->tenant, "a");
  EXPECT_EQ(detail->limit, "memory");
  EXPECT_EQ(detail->asked, asked);
  EXPECT_EQ(detail->left, 0u);
  EXPECT_EQ(detail->total, kQuota.count());
  EXPECT_EQ(Must(device_->stats()).memory.used, kQuota);
  EXPECT_EQ(Must(device_->stats()).memory.denied, 1u);
}

TEST_P(AllocatorContract, ARefusalTakesNothing) {
  for (int i = 0; i < 10; ++i)
    ExpectRefused(allocator_->Allocate(kQuota + Bytes(1)).status(), false);
  EXPECT_OK(allocator_->Allocate(kQuota).status());
}

TEST_P(AllocatorContract, ADoubleFreeIsAnErrorAndChangesNothing) {
  const DevicePtr pointer = Must(allocator_->AllocateRaw(MiB(1)));
  const Allocation other = Must(allocator_->Allocate(MiB(2)));
  EXPECT_OK(allocator_->Free(pointer));
  const absl::Status again = allocator_->Free(pointer);
  EXPECT_EQ(again.code(), absl::StatusCode::kInvalidArgument) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("it was freed before"));
  EXPECT_EQ(Used(), MiB(2));
}

TEST_P(AllocatorContract, AForeignPointerIsTheDriversToFree) {
  auto* alloc = runtime_->Symbol<int(unsigned long long*, size_t)>("cuMemAlloc_v2");
  unsigned long long foreign = 0;
  ASSERT_EQ(alloc(&foreign, 1 << 20), 0);
  EXPECT_EQ(Used(), Bytes(0));
  EXPECT_OK(allocator_->Free(DevicePtr(foreign)));
  EXPECT_EQ(UsedOnDevice(), used_before_);
  for (const uint64_t garbage : {uint64_t{1}, uint64_t{0xdeadbeef}, UINT64_MAX}) {
    EXPECT_FALSE(allocator_->Free(DevicePtr(garbage)).ok()) << garbage;
  }
  EXPECT_OK(allocator_->Free(DevicePtr()));
}

TEST_P(AllocatorContract, TheMiddleOfAnAllocationIsNotFreed) {
  const Allocation memory = Must(allocator_->Allocate(MiB(1)));
  EXPECT_FALSE(allocator_->Free(memory.pointer() + Bytes(4096)).ok());
  EXPECT_EQ(Used(), Rounded(MiB(1)));
}

TEST_P(DirectContract, AFreeThatTheDriverRefusesStaysCharged) {
  const DevicePtr pointer = Must(allocator_->AllocateRaw(MiB(1)));
  ASSERT_OK(Inject("error call=cuMemFree_v2 code=1 nth=1"));
  EXPECT_FALSE(allocator_->Free(pointer).ok());
  EXPECT_EQ(Used(), MiB(1));
  ASSERT_OK(Inject("clear"));
  EXPECT_OK(allocator_->Free(pointer));
  EXPECT_EQ(Used(), Bytes(0));
}

TEST_P(DirectContract, ASecondFreeThatIsFasterInTheDriverIsBookedOnce) {
  const DevicePtr pointer = Must(allocator_->AllocateRaw(MiB(1)));
  // The first thread to free takes the entry and is slow in the driver. The second finds no entry and returns at
  // once.
  ASSERT_OK(Inject("slow call=cuMemFree_v2 nth=1 host=1ms"));
  absl::Status first, second;
  {
    Thread slow = Must(runtime_->StartThread("slow", [&] { first = allocator_->Free(pointer); }));
    runtime_->SleepFor(absl::Microseconds(100));
    second = allocator_->Free(pointer);
  }
  ASSERT_OK(Inject("clear"));
  EXPECT_OK(second);
  EXPECT_EQ(first.code(), absl::StatusCode::kInvalidArgument) << first;
  EXPECT_EQ(Used(), Bytes(0));
  EXPECT_EQ(Must(device_->stats()).memory.allocations, 0u);
  EXPECT_EQ(UsedOnDevice(), used_before_);
}

TEST_P(AllocatorContract, MemoryHoldsWhatIsWritten) {
  const Stream stream = Must(Stream::Create(*device_));
  const Allocation a = Must(allocator_->Allocate(MiB(1))), b = Must(allocator_->Allocate(MiB(1)));
  std::vector<uint8_t> host(1 << 20);
  ASSERT_OK(stream.SetAsync(a.pointer(), 1, MiB(1)));
  ASSERT_OK(stream.SetAsync(b.pointer(), 2, MiB(1)));
  ASSERT_OK(stream.CopyToHost(host.data(), a.pointer(), MiB(1)));
  EXPECT_EQ(std::count(host.begin(), host.end(), 1), 1 << 20);
}

TEST_P(AllocatorContract, RandomSequencesBalance) {
  std::mt19937 random(7);
  std::vector<Allocation> live;
  Bytes expected;
  for (int i = 0; i < 2000; ++i) {
    if (live.empty() || random() % 3 != 0) {
      // A pool guarantees only half of the quota for pieces of any size.
      const Bytes size(1 + random() % (1 << 20));
      if (expected + Rounded(size) <= (pooled() ? kQuota / 2 : kQuota)) {
        live.push_back(Must(allocator_->Allocate(size)));
        expected += Rounded(size);
      }
    } else {
      std::swap(live[random() % live.size()], live.back());
      expected -= Rounded(live.back().size());
      live.pop_back();
    }
    ASSERT_EQ(Used(), expected);
  }
  EXPECT_EQ(Allocations(), live.size());
  live.clear();
  EXPECT_EQ(Used(), Bytes(0));
  ExpectAllGivenBack();
}

TEST_P(AllocatorContract, AllocationsOutliveTheirAllocator) {
  Allocation memory = Must(allocator_->Allocate(MiB(1)));
  allocator_.reset();
  EXPECT_EQ(Must(device_->stats()).memory.used, pooled() ? MiB(2) : Rounded(MiB(1)));
  EXPECT_OK(memory.Free());
  memory = Allocation();  // the last object that keeps the pool
  EXPECT_EQ(Must(device_->stats()).memory.used, Bytes(0));
  EXPECT_EQ(UsedOnDevice(), used_before_);
}

// Runs on real threads and the wall clock.
class AllocatorContractThreads : public AllocatorContract {
 protected:
  AllocatorContractThreads() : AllocatorContract(/*wall_clock=*/true) {}
};

TEST_P(AllocatorContractThreads, TheSumNeverExceedsTheQuotaAndFittingRequestsSucceed) {
  // Each of the four threads holds at most a quarter, so none of their requests may ever be refused, whatever the
  // thread that always asks for too much does.
  constexpr unsigned kThreads = 4;
  const Bytes quarter = kQuota / (kThreads * (pooled() ? 4u : 1u));
  std::atomic<bool> stop{false};
  std::atomic<int> refused{0}, above{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 500; ++i) {
        const Bytes size(1 + random() % quarter.count());
        const auto pointer = allocator_->AllocateRaw(size);
        if (!pointer.ok()) {
          ++refused;
          continue;
        }
        if (Must(device_->stats()).memory.used > kQuota) ++above;
        if (!allocator_->Free(*pointer).ok()) ++refused;
      }
    });
  }
  threads.emplace_back([&] {
    while (!stop) {
      if (allocator_->AllocateRaw(kQuota + Bytes(1)).ok()) ++above;
    }
  });
  for (unsigned t = 0; t < kThreads; ++t) threads[t].join();
  stop = true;
  threads.back().join();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(above, 0);
  EXPECT_EQ(Used(), Bytes(0));
  ExpectAllGivenBack();
}

TEST_P(AllocatorContractThreads, FreedByOtherThreads) {
  std::vector<DevicePtr> pointers;
  const int count = swappable() ? 32 : 64;
  for (int i = 0; i < count; ++i) pointers.push_back(Must(allocator_->AllocateRaw(KiB(64))));
  std::vector<std::thread> threads;
  std::atomic<int> failed{0}, freed{0};
  // Two threads free each pointer; exactly one of them succeeds.
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (const DevicePtr pointer : pointers) (allocator_->Free(pointer).ok() ? freed : failed)++;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(freed, count);
  EXPECT_EQ(failed, count);
  EXPECT_EQ(Used(), Bytes(0));
}

constexpr Flavour kFlavours[] = {
    {"direct", AllocationStrategy::kDirect, OverQuota::kFail},
    {"direct", AllocationStrategy::kDirect, OverQuota::kWait},
    {"direct", AllocationStrategy::kDirect, OverQuota::kReclaim},
    {"pool", AllocationStrategy::kPool, OverQuota::kFail},
    {"pool", AllocationStrategy::kPool, OverQuota::kWait},
    {"pool", AllocationStrategy::kPool, OverQuota::kReclaim},
    {"suballocating", AllocationStrategy::kSuballocating, OverQuota::kFail},
    {"suballocating", AllocationStrategy::kSuballocating, OverQuota::kWait},
    {"suballocating", AllocationStrategy::kSuballocating, OverQuota::kReclaim},
    {"swappable", AllocationStrategy::kSwappable, OverQuota::kFail},
    {"swappable", AllocationStrategy::kSwappable, OverQuota::kWait},
    {"swappable", AllocationStrategy::kSwappable, OverQuota::kReclaim},
    {"direct_in_pages", AllocationStrategy::kDirect, OverQuota::kFail, MiB(2)},
    {"direct_in_pages", AllocationStrategy::kDirect, OverQuota::kWait, MiB(2)},
    {"suballocating_in_pages", AllocationStrategy::kSuballocating, OverQuota::kFail, MiB(2)},
    {"suballocating_in_pages", AllocationStrategy::kSuballocating, OverQuota::kWait, MiB(2)},
};
std::string FlavourName(const ::testing::TestParamInfo<Flavour>& info) {
  constexpr const char* kActions[] = {"fail", "wait", "reclaim"};
  return std::string(info.param.name) + "_" + kActions[static_cast<int>(info.param.over_quota)];
}
INSTANTIATE_TEST_SUITE_P(Strategies, DirectContract, ::testing::ValuesIn(kFlavours, kFlavours + 3),
                         FlavourName);
INSTANTIATE_TEST_SUITE_P(Strategies, AllocatorContract, ::testing::ValuesIn(kFlavours),
                         FlavourName);
INSTANTIATE_TEST_SUITE_P(Strategies, AllocatorContractThreads, ::testing::ValuesIn(kFlavours),
                         FlavourName);

// ---- Behaviour over the quota ----

using OverQuotaTest = DeviceTest;

TEST_F(OverQuotaTest, WaitsForAFree) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator allocator = Must(Allocator::Create(
      device, {.over_quota = OverQuota::kWait, .timeout = absl::InfiniteDuration()}));
  Allocation held = Must(allocator.Allocate(MiB(60)));
  const absl::Duration begin = runtime_->Now();
  absl::Duration got;
  {
    Thread thread = Must(runtime_->StartThread("waiter", [&] {
      EXPECT_OK(allocator.Allocate(MiB(32)).status());
      got = runtime_->Now();
    }));
    runtime_->SleepFor(absl::Milliseconds(100));
    EXPECT_OK(held.Free());
  }
  EXPECT_NEAR(absl::ToDoubleMilliseconds(got - begin), 100, 5);
}

// With every strategy: a waiting request that is cancelled returns at once, holds up nobody, and a later request may
// wait again.
TEST_F(OverQuotaTest, AWaitIsCancelled) {
  for (const AllocationStrategy strategy : {AllocationStrategy::kDirect, AllocationStrategy::kPool,
                                            AllocationStrategy::kSuballocating}) {
    const VirtualDevice device = MakeDevice("a", "memory=128MiB");
    const Allocator allocator =
        Must(Allocator::Create(device, {.strategy = strategy,
                                        .over_quota = OverQuota::kWait,
                                        .timeout = absl::InfiniteDuration()}));
    Allocation held = Must(allocator.Allocate(MiB(96)));
    absl::Duration ended;
    Thread waiter = Must(runtime_->StartThread("waiter", [&] {
      EXPECT_EQ(allocator.Allocate(MiB(64)).status().code(), absl::StatusCode::kCancelled);
      ended = runtime_->Now();
    }));
    runtime_->SleepFor(absl::Milliseconds(100));
    const absl::Duration cancelled = runtime_->Now();
    EXPECT_OK(allocator.CancelWaits());
    waiter.Join();
    EXPECT_LE(ended - cancelled, absl::Milliseconds(2));
    EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
    // The cancelled request leaves nothing behind: a later one waits and is served.
    Thread later = Must(
        runtime_->StartThread("later", [&] { EXPECT_OK(allocator.Allocate(MiB(64)).status()); }));
    runtime_->SleepFor(absl::Milliseconds(100));
    EXPECT_OK(held.Free());
    later.Join();
  }
}

TEST_F(OverQuotaTest, WaitsForAResizeAndUntilItsDeadline) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  const Allocator allocator = Must(
      Allocator::Create(device, {.over_quota = OverQuota::kWait, .timeout = absl::Seconds(1)}));
  const Allocation held = Must(allocator.Allocate(MiB(60)));
  const absl::Duration begin = runtime_->Now();
  EXPECT_EQ(allocator.Allocate(MiB(32)).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - begin), 1000, 5);
  {
    Thread thread = Must(
        runtime_->StartThread("waiter", [&] { EXPECT_OK(allocator.Allocate(MiB(32)).status()); }));
    runtime_->SleepFor(absl::Milliseconds(100));
    EXPECT_OK(device.Resize("memory=92MiB"));
  }
}

TEST_F(OverQuotaTest, ReclaimsUntilItFits) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  std::vector<Allocation> cache;
  int asked = 0;
  const Allocator allocator = Must(Allocator::Create(
      device, {.over_quota = OverQuota::kReclaim, .reclaim = [&](Bytes size, Bytes left) {
                 EXPECT_EQ(size, MiB(32));
                 EXPECT_LT(left, size);
                 ++asked;
                 if (cache.empty()) return false;
                 cache.pop_back();
                 return true;
               }}));
  for (int i = 0; i < 6; ++i) cache.push_back(Must(allocator.Allocate(MiB(10))));
  const Allocation memory = Must(allocator.Allocate(MiB(32)));
  EXPECT_EQ(asked, 3);
  cache.clear();
  asked = 0;
  EXPECT_OK(allocator.Allocate(MiB(32)).status());
  EXPECT_EQ(asked, 0);
}

TEST_F(OverQuotaTest, ReclaimingEndsWhenNothingHelps) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  int asked = 0;
  const Allocator allocator =
      Must(Allocator::Create(device, {.over_quota = OverQuota::kReclaim,
                                      .reclaim = [&](Bytes, Bytes) { return ++asked > 0; }}));
  const Allocation held = Must(allocator.Allocate(MiB(60)));
  EXPECT_EQ(allocator.Allocate(MiB(32)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(asked, 16);
  asked = 0;
  EXPECT_EQ(allocator.Allocate(GiB(32)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(asked, 0);
}

TEST_F(OverQuotaTest, OptionsAreChecked) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  EXPECT_EQ(Allocator::Create(device, {.over_quota = OverQuota::kReclaim}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      Allocator::Create(device, {.over_quota = OverQuota::kWait, .timeout = absl::Seconds(-1)})
          .status()
          .code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      Allocator::Create(device, {.strategy = static_cast<AllocationStrategy>(9)}).status().code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gpushare
