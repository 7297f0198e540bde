// SPDX-License-Identifier: Apache-2.0
// A waiter for memory is served when memory is free: with every strategy and from every strategy, by its own tenant
// or by a loan's return.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

enum class Frees { kAtOnce, kOnIdleStream, kInItsStream, kInItsStreamBefore };

using Case = std::tuple<int, int, bool, Frees>;

class ServedTest : public StreamTest, public ::testing::WithParamInterface<Case> {
 protected:
  // The machine's time to wake a thread is excluded.
  std::string config() const override { return StreamTest::config() + ",wake_sleep=0,wake_spin=0"; }
  // How long after the memory is free the waiter has it.
  void Serve(absl::Duration* after);
};

void ServedTest::Serve(absl::Duration* after) {
  const auto& [waits_in, freed_from, lent, frees] = GetParam();
  const VirtualDevice owner = MakeDevice("owner", "memory=1GiB");
  const VirtualDevice borrower = MakeDevice("borrower", "memory=256MiB,memory_cap=7GiB");
  const VirtualDevice& freer = lent ? borrower : owner;
  std::vector<Allocation> rest;  // the unpromised memory
  const Allocator direct = Must(Allocator::Create(freer));
  const Allocator waits =
      Must(Allocator::Create(owner, {.strategy = static_cast<AllocationStrategy>(waits_in)}));
  const Allocator from =
      Must(Allocator::Create(freer, {.strategy = static_cast<AllocationStrategy>(freed_from)}));
  const Stream stream = Must(Stream::Create(freer)), other = Must(Stream::Create(owner));
  Allocation held = frees == Frees::kAtOnce ? Must(from.Allocate(MiB(512)))
                                            : Must(from.Allocate(MiB(512), stream));
  for (;;) {
    absl::StatusOr<Allocation> more = direct.Allocate(MiB(256));
    if (!more.ok()) break;
    rest.push_back(*std::move(more));
  }
  const bool at_once = frees == Frees::kAtOnce || frees == Frees::kOnIdleStream;
  if (!at_once) {
    ASSERT_OK(Spin(stream, absl::Microseconds(7'300)));
  }
  if (frees == Frees::kInItsStreamBefore) {
    EXPECT_OK(held.Free());
  }
  absl::Duration served;
  Thread waiter = Must(runtime_->StartThread("waiter", [&] {
    EXPECT_OK(waits.Allocate(MiB(512), {.stream = &other, .timeout = absl::Seconds(1)}).status());
    served = runtime_->Now();
  }));
  runtime_->SleepFor(absl::Microseconds(2'700));
  EXPECT_EQ(served, absl::ZeroDuration());
  absl::Duration over = runtime_->Now();
  const uint64_t told = Calls("cuLaunchHostFunc");
  if (frees != Frees::kInItsStreamBefore) {
    EXPECT_OK(held.Free());
  }
  // Memory that is free at once passes from thread to thread, without a thread of the driver.
  if (at_once) {
    EXPECT_EQ(Calls("cuLaunchHostFunc"), told);
  } else {
    EXPECT_OK(stream.Synchronize());
    over = runtime_->Now();
  }
  waiter.Join();
  *after = served - over;
}

// Only the driver's calls to free and allocate take time, 0.3 us each. Swappable memory takes more of them, which reserve
// addresses, create memory and map it.
TEST_P(ServedTest, WhenMemoryIsFree) {
  const bool swappable =
      static_cast<AllocationStrategy>(std::get<0>(GetParam())) == AllocationStrategy::kSwappable;
  absl::Duration after = absl::InfiniteDuration();
  Serve(&after);
  EXPECT_LE(after, swappable ? absl::Microseconds(4) : absl::Microseconds(2));
}

// With a driver whose calls take no time there is nothing else that does.
class ServedAtOnceTest : public ServedTest {
 protected:
  std::string config() const override {
    return ServedTest::config() +
           ",call_host=0,query_host=0,launch_host=0,record_host=0,sync_return=0";
  }
};

TEST_P(ServedAtOnceTest, WhenMemoryIsFree) {
  absl::Duration after = absl::InfiniteDuration();
  Serve(&after);
  EXPECT_EQ(after, absl::ZeroDuration());
}

std::string CaseOf(const testing::TestParamInfo<Case>& info) {
  const std::string strategies[] = {"direct", "pool", "suballocating", "swappable"};
  const auto& [waits_in, freed_from, lent, frees] = info.param;
  return strategies[waits_in] + "_from_" + strategies[freed_from] + (lent ? "_lent" : "") +
         (frees == Frees::kAtOnce         ? ""
          : frees == Frees::kOnIdleStream ? "_on_idle_stream"
          : frees == Frees::kInItsStream  ? "_in_its_stream"
                                          : "_in_its_stream_before");
}

const auto kAtOnceCases =
    testing::Combine(testing::Range(0, 4), testing::Range(0, 4), testing::Bool(),
                     testing::Values(Frees::kAtOnce, Frees::kOnIdleStream));
// Direct and swappable allocations are freed when the device has reached the free.
const auto kInItsStreamCases =
    testing::Combine(testing::Range(0, 4), testing::Range(1, 3), testing::Bool(),
                     testing::Values(Frees::kInItsStream, Frees::kInItsStreamBefore));

INSTANTIATE_TEST_SUITE_P(Strategies, ServedTest, kAtOnceCases, CaseOf);
INSTANTIATE_TEST_SUITE_P(InItsStream, ServedTest, kInItsStreamCases, CaseOf);
INSTANTIATE_TEST_SUITE_P(Strategies, ServedAtOnceTest, kAtOnceCases, CaseOf);
INSTANTIATE_TEST_SUITE_P(InItsStream, ServedAtOnceTest, kInItsStreamCases, CaseOf);

class ServedInAPieceTest : public StreamTest {
 protected:
  std::string config() const override { return StreamTest::config() + ",wake_sleep=0,wake_spin=0"; }
};

// A piece of the pool goes back to the driver as a whole or not at all: memory that is free within one is for the
// waiters here.
TEST_F(ServedInAPieceTest, WithinOneThatDoesNotGoBack) {
  const VirtualDevice owner = MakeDevice("owner", "memory=64MiB");
  const Allocator pool = Must(Allocator::Create(owner, {.strategy = AllocationStrategy::kPool}));
  const Stream stream = Must(Stream::Create(owner)), other = Must(Stream::Create(owner));
  std::vector<Allocation> held;
  for (int i = 0; i < 8; ++i) held.push_back(Must(pool.Allocate(MiB(8), stream)));
  absl::Duration served;
  Thread waiter = Must(runtime_->StartThread("waiter", [&] {
    EXPECT_OK(pool.Allocate(MiB(8), {.stream = &other, .timeout = absl::Seconds(1)}).status());
    served = runtime_->Now();
  }));
  runtime_->SleepFor(absl::Microseconds(2'300));  // not at the time when it polls
  const absl::Duration freed = runtime_->Now();
  EXPECT_OK(held[2].Free());
  waiter.Join();
  EXPECT_LE(served - freed, absl::Microseconds(10));
}

// Memory that was freed behind a kernel of 50 ms.
class FreedBehindTest : public ServedInAPieceTest {
 protected:
  static constexpr absl::Duration kKernel = absl::Milliseconds(50);
  static AllocatorOptions Suballocating() {
    return {.strategy = AllocationStrategy::kSuballocating};
  }
  // Starts a thread that waits for the memory and records its answer.
  Thread Wait(const Allocator& allocator, const Stream* stream, absl::Duration timeout) {
    return Must(runtime_->StartThread("waiter", [=, this, &allocator] {
      answer_ = allocator.Allocate(MiB(64), {.stream = stream, .timeout = timeout}).status();
      answered_ = runtime_->Now();
    }));
  }

  absl::Status answer_;
  absl::Duration answered_;
  std::optional<Stream> kept_;
};

// The freeing thread goes on. The stream's host function wakes the waiter, which has the freed block: this takes one
// thread of the driver and one wake-up, and neither thread calls the driver.
TEST_F(FreedBehindTest, IsHandedOverWithoutACallOfTheDriver) {
  const VirtualDevice owner = MakeDevice("owner", "memory=64MiB");
  const Allocator pool = Must(Allocator::Create(owner, Suballocating()));
  const Stream stream = Must(Stream::Create(owner)), other = Must(Stream::Create(owner));
  Allocation held = Must(pool.Allocate(MiB(64), stream));
  ASSERT_OK(Spin(stream, kKernel));
  const absl::Duration began = runtime_->Now();
  Thread waiter = Wait(pool, &other, absl::Seconds(1));
  runtime_->SleepFor(absl::Microseconds(2'300));
  const uint64_t functions = Calls("cuLaunchHostFunc"), frees = Calls("cuMemFree"),
                 allocations = Calls("cuMemAlloc");
  const absl::Duration before = runtime_->Now();
  EXPECT_OK(held.Free());
  EXPECT_LE(runtime_->Now() - before, absl::Microseconds(10));
  waiter.Join();
  EXPECT_OK(answer_);
  EXPECT_GE(answered_ - began, kKernel - absl::Microseconds(10));
  EXPECT_LE(answered_ - began, kKernel + absl::Microseconds(10));
  EXPECT_EQ(Calls("cuLaunchHostFunc") - functions, 1u);
  EXPECT_EQ(Calls("cuMemFree") - frees, 0u);
  EXPECT_EQ(Calls("cuMemAlloc") - allocations, 0u);
}

// How the stream of the free was created and what became of it; and the strategies of the waiters, in order.
enum class On { kOwn, kGone, kForeign };
class DeadlineTest
    : public FreedBehindTest,
      public ::testing::WithParamInterface<std::tuple<On, std::vector<AllocationStrategy>>> {};

// Giving the memory back to the driver would wait for the kernel, and the deadline is before the kernel's end.
TEST_P(DeadlineTest, IsNotWaitedForBeyond) {
  const auto& [on, strategies] = GetParam();
  const VirtualDevice owner = MakeDevice("owner", "memory=64MiB");
  std::map<AllocationStrategy, Allocator> allocators;
  for (const auto strategy : {AllocationStrategy::kDirect, AllocationStrategy::kPool,
                              AllocationStrategy::kSuballocating}) {
    allocators.emplace(strategy, Must(Allocator::Create(owner, {.strategy = strategy})));
  }
  const Allocator& pool = allocators.at(AllocationStrategy::kSuballocating);
  CUstream_st* native = nullptr;
  ASSERT_EQ(runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate")(&native, 1), 0);
  {
    std::optional<Stream> stream =
        Must(on == On::kForeign ? Stream::Bind(owner, native) : Stream::Create(owner));
    ASSERT_OK(Spin(*stream, kKernel));
    if (on == On::kForeign) {
      stream.reset();
      const DevicePtr held = Must(pool.AllocateRaw(MiB(64)));
      EXPECT_OK(pool.FreeNative(held, native));
    } else {
      EXPECT_OK(Must(pool.Allocate(MiB(64), *stream)).Free());
      if (on == On::kOwn) kept_.emplace(*std::move(stream));
    }
  }
  for (const AllocationStrategy strategy : strategies) {
    const absl::Duration began = runtime_->Now();
    Thread waiter = Wait(allocators.at(strategy), nullptr, absl::Milliseconds(7));
    waiter.Join();
    EXPECT_EQ(answer_.code(), absl::StatusCode::kDeadlineExceeded) << answer_;
    EXPECT_LE(answered_ - began, absl::Microseconds(7'100));
  }
  // After the kernel's end they get the memory.
  for (const AllocationStrategy strategy : strategies) {
    Thread waiter = Wait(allocators.at(strategy), nullptr, absl::Seconds(1));
    waiter.Join();
    EXPECT_OK(answer_);
  }
  kept_.reset();
  EXPECT_EQ(runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2")(native), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, DeadlineTest,
    testing::Combine(
        testing::Values(On::kOwn, On::kGone, On::kForeign),
        testing::Values(
            std::vector{AllocationStrategy::kSuballocating},
            std::vector{AllocationStrategy::kDirect}, std::vector{AllocationStrategy::kPool},
            std::vector{AllocationStrategy::kDirect, AllocationStrategy::kSuballocating},
            std::vector{AllocationStrategy::kSuballocating, AllocationStrategy::kDirect},
            std::vector{AllocationStrategy::kPool, AllocationStrategy::kSuballocating})));

// However long others have waited already.
TEST_F(FreedBehindTest, IsNotWaitedForByWhoFreesAgain) {
  const VirtualDevice owner = MakeDevice("owner", "memory=66MiB");
  const Allocator pool = Must(Allocator::Create(owner, Suballocating())),
                  direct = Must(Allocator::Create(owner));
  for (const Allocator* asked : {&pool, &direct}) {
    const Stream stream = Must(Stream::Create(owner));
    Allocation held = Must(pool.Allocate(MiB(64), stream)),
               small = Must(pool.Allocate(MiB(1), stream));
    const absl::Duration began = runtime_->Now();
    ASSERT_OK(Spin(stream, absl::Milliseconds(100)));
    EXPECT_OK(held.Free());
    runtime_->SleepFor(absl::Milliseconds(1));
    Thread waiter = Wait(*asked, nullptr, absl::Seconds(1));
    runtime_->SleepFor(absl::Milliseconds(50));
    const absl::Duration before = runtime_->Now();
    EXPECT_OK(small.Free());
    EXPECT_LE(runtime_->Now() - before, absl::Microseconds(10));
    waiter.Join();
    EXPECT_OK(answer_);
    EXPECT_LE(answered_ - began, absl::Milliseconds(101));
    EXPECT_OK(stream.Synchronize());
  }
}

// Likewise when the quota has room and the device has none.
TEST_F(FreedBehindTest, IsNotWaitedForBeyondTheDeadlineOnAFullDevice) {
  const VirtualDevice owner = MakeDevice("owner", "memory=1GiB");
  const Allocator pool = Must(Allocator::Create(owner, Suballocating()));
  const Stream stream = Must(Stream::Create(owner));
  const absl::Duration began = runtime_->Now();
  ASSERT_OK(Spin(stream, kKernel));
  EXPECT_OK(Must(pool.Allocate(MiB(64), stream)).Free());
  const auto allocate = runtime_->Symbol<int(uint64_t*, size_t)>("cuMemAlloc_v2");
  const auto free = runtime_->Symbol<int(uint64_t)>("cuMemFree_v2");
  std::vector<uint64_t> outside;
  for (size_t bytes = size_t{1} << 30; bytes >= size_t{1} << 20; bytes /= 2) {
    for (uint64_t pointer = 0; allocate(&pointer, bytes) == 0;) outside.push_back(pointer);
  }
  const absl::Duration asked = runtime_->Now();
  EXPECT_EQ(pool.Allocate(MiB(5), {.timeout = absl::Milliseconds(7)}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_LE(runtime_->Now() - asked, absl::Microseconds(7'100));
  EXPECT_OK(pool.Allocate(MiB(5), {.timeout = absl::Seconds(1)}).status());
  EXPECT_GE(runtime_->Now() - began, kKernel);
  EXPECT_LE(runtime_->Now() - began, kKernel + absl::Milliseconds(2));
  for (const uint64_t pointer : outside) EXPECT_EQ(free(pointer), 0);
}

// Behind a fault nothing runs any more, not even host functions. The device has the memory again when the context ends.
TEST_F(FreedBehindTest, IsServedBehindAFaultWhenTheContextHasEnded) {
  const VirtualDevice owner = MakeDevice("owner", "memory=6GiB");
  std::optional<VirtualDevice> borrower =
      MakeDevice("borrower", "memory=256MiB,memory_cap=7GiB,isolation=context");
  std::optional<Allocator> pool = Must(Allocator::Create(*borrower, Suballocating()));
  const Allocator direct = Must(Allocator::Create(owner));
  std::optional<Module> module = Must(Module::Load(*borrower, kPtx));
  const Function spin = Must(module->GetFunction("spin"));
  std::optional<Stream> stream = Must(Stream::Create(*borrower));
  Allocation held = Must(pool->Allocate(GiB(2), *stream));
  const Allocation most = Must(direct.Allocate(GiB(4)));
  absl::Duration served;
  Thread waiter = Must(runtime_->StartThread("waiter", [&] {
    EXPECT_OK(direct.Allocate(GiB(2), {.timeout = absl::Milliseconds(200)}).status());
    served = runtime_->Now();
  }));
  runtime_->SleepFor(absl::Microseconds(2'300));
  ASSERT_OK(Inject("illegal_address kernel=spin"));
  const absl::Duration began = runtime_->Now();
  ASSERT_OK(stream->Launch(spin, {.grid = {100}, .block = {1024}}, uint64_t{20'000'000}));
  EXPECT_OK(held.Free());
  EXPECT_LE(runtime_->Now() - began, absl::Milliseconds(1));
  EXPECT_EQ(stream->Synchronize().code(), absl::StatusCode::kAborted);
  ASSERT_OK(Inject("clear"));
  runtime_->SleepFor(absl::Milliseconds(25));
  EXPECT_EQ(Must(borrower->stats()).memory.used, GiB(2));
  pool.reset();
  module.reset();
  stream.reset();
  borrower.reset();
  const absl::Duration closed = runtime_->Now();
  waiter.Join();
  EXPECT_LE(served - closed, absl::Microseconds(20));
}

// A stream that keeps freeing never reaches its last free; a waiter is served all the same.
TEST_F(FreedBehindTest, IsHadFromAStreamThatFreesOnAndOn) {
  const VirtualDevice owner = MakeDevice("owner", "memory=66MiB");
  const Allocator pool = Must(Allocator::Create(owner, Suballocating())),
                  direct = Must(Allocator::Create(owner));
  const Stream stream = Must(Stream::Create(owner));
  Allocation held = Must(pool.Allocate(MiB(64), stream));
  ASSERT_OK(Spin(stream, absl::Milliseconds(5)));
  EXPECT_OK(held.Free());
  Thread waiter = Wait(direct, nullptr, absl::Seconds(10));
  // Each free is behind a kernel that is still running when the next free comes.
  const absl::Duration began = runtime_->Now();
  while (answered_ == absl::ZeroDuration() && runtime_->Now() - began < absl::Seconds(1)) {
    Allocation small = Must(pool.Allocate(MiB(1), stream));
    ASSERT_OK(Spin(stream, absl::Milliseconds(5)));
    EXPECT_OK(small.Free());
    runtime_->SleepFor(absl::Milliseconds(3));
  }
  waiter.Join();
  EXPECT_OK(answer_);
  EXPECT_LT(answered_ - began, absl::Milliseconds(500));
}

}  // namespace
}  // namespace gpushare
