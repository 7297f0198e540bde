// SPDX-License-Identifier: Apache-2.0
// Who waits for memory has it when it is free: of every strategy, from every strategy, its own tenant's or lent to another.
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
  // What the machine takes to wake a thread is its own.
  std::string config() const override { return StreamTest::config() + ",wake_sleep=0,wake_spin=0"; }
};

// The calls of the driver that free and allocate, and nothing else.
TEST_P(ServedTest, WhenMemoryIsFree) {
  const auto& [waits_in, freed_from, lent, frees] = GetParam();
  const VirtualDevice owner = MakeDevice("owner", "memory=1GiB");
  const VirtualDevice borrower = MakeDevice("borrower", "memory=256MiB,memory_cap=7GiB");
  const VirtualDevice& freer = lent ? borrower : owner;
  std::vector<Allocation> rest;  // what nobody is promised
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
  // What is there at once goes from thread to thread, with none of the driver's in between.
  if (at_once) {
    EXPECT_EQ(Calls("cuLaunchHostFunc"), told);
  } else {
    EXPECT_OK(stream.Synchronize());
    over = runtime_->Now();
  }
  waiter.Join();
  EXPECT_LE(served - over, absl::Microseconds(2));
}

std::string CaseOf(const testing::TestParamInfo<Case>& info) {
  const std::string strategies[] = {"direct", "pool", "suballocating"};
  const auto& [waits_in, freed_from, lent, frees] = info.param;
  return strategies[waits_in] + "_from_" + strategies[freed_from] + (lent ? "_lent" : "") +
         (frees == Frees::kAtOnce         ? ""
          : frees == Frees::kOnIdleStream ? "_on_idle_stream"
          : frees == Frees::kInItsStream  ? "_in_its_stream"
                                          : "_in_its_stream_before");
}

INSTANTIATE_TEST_SUITE_P(Strategies, ServedTest,
                         testing::Combine(testing::Range(0, 3), testing::Range(0, 3),
                                          testing::Bool(),
                                          testing::Values(Frees::kAtOnce, Frees::kOnIdleStream)),
                         CaseOf);
// What is allocated directly is freed when the device has come so far.
INSTANTIATE_TEST_SUITE_P(
    InItsStream, ServedTest,
    testing::Combine(testing::Range(0, 3), testing::Range(1, 3), testing::Bool(),
                     testing::Values(Frees::kInItsStream, Frees::kInItsStreamBefore)),
    CaseOf);

class ServedInAPieceTest : public StreamTest {
 protected:
  std::string config() const override { return StreamTest::config() + ",wake_sleep=0,wake_spin=0"; }
};

// A piece of the pool goes back to the driver whole, or not at all: what is free within one is for those who wait here.
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
  runtime_->SleepFor(absl::Microseconds(2'300));  // not when it looks by itself
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
  // What the thread that is to be served asks, until it has an answer.
  Thread Wait(const Allocator& allocator, const Stream* stream, absl::Duration timeout) {
    return Must(runtime_->StartThread("waiter", [=, this, &allocator] {
      answer_ = allocator.Allocate(MiB(64), {.stream = stream, .timeout = timeout}).status();
      answered_ = runtime_->Now();
    }));
  }

  absl::Status answer_;
  absl::Duration answered_;
};

// Who frees goes on; who waits is woken by the stream's function and has the block that was freed: one thread of the
// driver's, one wake-up, and no call of the driver by either.
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

// Giving the memory back to the driver would wait for the kernel, and the deadline is before its end.
TEST_F(FreedBehindTest, IsNotWaitedForBeyondTheDeadline) {
  const VirtualDevice owner = MakeDevice("owner", "memory=64MiB");
  const Allocator pool = Must(Allocator::Create(owner, Suballocating())),
                  direct = Must(Allocator::Create(owner));
  const Stream stream = Must(Stream::Create(owner));
  Allocation held = Must(pool.Allocate(MiB(64), stream));
  ASSERT_OK(Spin(stream, kKernel));
  EXPECT_OK(held.Free());
  for (const Allocator* asked : {&direct, &pool}) {
    const absl::Duration began = runtime_->Now();
    Thread waiter = Wait(*asked, nullptr, absl::Milliseconds(7));
    waiter.Join();
    EXPECT_EQ(answer_.code(), absl::StatusCode::kDeadlineExceeded) << answer_;
    EXPECT_LE(answered_ - began, absl::Microseconds(7'100));
  }
  // Behind its end both have it.
  Thread waiter = Wait(direct, nullptr, absl::Seconds(1));
  waiter.Join();
  EXPECT_OK(answer_);
}

// A stream that frees on and on is never known to have come to all of it; who waits has it all the same.
TEST_F(FreedBehindTest, IsHadFromAStreamThatFreesOnAndOn) {
  const VirtualDevice owner = MakeDevice("owner", "memory=66MiB");
  const Allocator pool = Must(Allocator::Create(owner, Suballocating())),
                  direct = Must(Allocator::Create(owner));
  const Stream stream = Must(Stream::Create(owner));
  Allocation held = Must(pool.Allocate(MiB(64), stream));
  ASSERT_OK(Spin(stream, absl::Milliseconds(5)));
  EXPECT_OK(held.Free());
  Thread waiter = Wait(direct, nullptr, absl::Seconds(10));
  // Each free is behind a kernel that has not ended when the next one comes.
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
