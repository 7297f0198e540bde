// SPDX-License-Identifier: Apache-2.0
#include "gpushare/interrupt.h"

#include <optional>
#include <string>

#include "gpushare/gang.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

// On the virtual clock the thread is asked every 50 ms, and interrupts the third time.
class InterruptTest : public StreamTest {
 protected:
  template <typename Call>
  void EndsAtTheThird(const Call& call) {
    int asked = 0;
    const absl::Duration begin = runtime_->Now();
    const InterruptScope scope([&] { return ++asked == 3; });
    const absl::Status status = call();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    EXPECT_EQ(asked, 3);
    EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - begin), 150, 5);
  }
};

TEST_F(InterruptTest, EndsWaitsForATurn) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  ASSERT_OK(device.Suspend());
  EndsAtTheThird([&] { return Spin(stream, absl::Microseconds(100)); });
  EndsAtTheThird([&] { return Lease::Acquire(device).status(); });
  EndsAtTheThird([&] { return Lease::Acquire(device, {.exclusive = true}).status(); });
  const GangMember member{&device, {}};
  EndsAtTheThird([&] { return Gang::Acquire({member}).status(); });
  // The queue is empty afterwards.
  ASSERT_OK(device.Resume());
  EXPECT_OK(Spin(stream, absl::Microseconds(100)));
  EXPECT_OK(stream.Synchronize());
  EXPECT_OK(Lease::Acquire(device).status());
  EXPECT_EQ(Must(device.stats()).compute.launches, 1u);  // the earlier ones do not count
}

// A copy of a megabyte at 1 KB/s takes a quarter of an hour.
TEST_F(InterruptTest, EndsWaitsForBandwidth) {
  const VirtualDevice device = MakeDevice("a", "h2d=1KB/s,d2h=1KB/s");
  const Stream stream = Must(Stream::Create(device));
  const Allocator allocator = Must(Allocator::Create(device));
  const Allocation memory = Must(allocator.Allocate(MiB(1)));
  std::string host(MiB(1).count(), 'x');
  // The first copy leaves a debt, for which the next one waits.
  ASSERT_OK(stream.CopyToDeviceAsync(memory.pointer(), host.data(), MiB(1)));
  ASSERT_OK(stream.CopyToHostAsync(host.data(), memory.pointer(), MiB(1)));
  ASSERT_OK(stream.Synchronize());
  EndsAtTheThird([&] { return stream.CopyToDeviceAsync(memory.pointer(), host.data(), MiB(1)); });
  EndsAtTheThird([&] { return stream.CopyToHostAsync(host.data(), memory.pointer(), MiB(1)); });
  // The interrupted copies were not charged.
  EXPECT_EQ(Must(device.stats()).h2d.bytes, MiB(1));
  ASSERT_OK(device.Resize("h2d=none,d2h=none"));
  EXPECT_OK(stream.CopyToDeviceAsync(memory.pointer(), host.data(), MiB(1)));
  ASSERT_OK(device.Suspend());
  EndsAtTheThird([&] { return stream.CopyToDeviceAsync(memory.pointer(), host.data(), MiB(1)); });
  ASSERT_OK(device.Resume());
}

TEST_F(InterruptTest, EndsTheWaitOfAGraphThatCopies) {
  const VirtualDevice device = MakeDevice("a", "h2d=1KB/s");
  const Stream stream = Must(Stream::Create(device));
  const Allocator allocator = Must(Allocator::Create(device));
  const Allocation memory = Must(allocator.Allocate(MiB(1)));
  const std::string host(MiB(1).count(), 'x');
  ASSERT_OK(stream.BeginCapture());
  ASSERT_OK(stream.CopyToDeviceAsync(memory.pointer(), host.data(), MiB(1)));
  const Graph graph = Must(stream.EndCapture());
  ASSERT_OK(stream.LaunchGraph(graph));
  EndsAtTheThird([&] { return stream.LaunchGraph(graph); });
}

TEST_F(InterruptTest, EndsWaitsForMemoryOfEveryStrategy) {
  for (const AllocationStrategy strategy : {AllocationStrategy::kDirect, AllocationStrategy::kPool,
                                            AllocationStrategy::kSuballocating}) {
    const VirtualDevice device = MakeDevice("a", "memory=128MiB");
    const Allocator allocator =
        Must(Allocator::Create(device, {.strategy = strategy,
                                        .over_quota = OverQuota::kWait,
                                        .timeout = absl::InfiniteDuration()}));
    Allocation held = Must(allocator.Allocate(MiB(96)));
    EndsAtTheThird([&] { return allocator.Allocate(MiB(64)).status(); });
    EXPECT_EQ(Must(device.stats()).memory.denied, 0u);
    // A later request waits and is served.
    Thread later = Must(
        runtime_->StartThread("later", [&] { EXPECT_OK(allocator.Allocate(MiB(64)).status()); }));
    runtime_->SleepFor(absl::Milliseconds(100));
    EXPECT_OK(held.Free());
    later.Join();
  }
}

TEST_F(InterruptTest, LeavesAWaitInItsPlaceAndCountsItOnce) {
  const VirtualDevice device = MakeDevice("a", "memory=100MiB");
  const Allocator allocator = Must(Allocator::Create(
      device, {.over_quota = OverQuota::kWait, .timeout = absl::InfiniteDuration()}));
  Allocation held = Must(allocator.Allocate(MiB(90)));
  std::string served;
  Thread first = Must(runtime_->StartThread("first", [&] {
    const InterruptScope scope([] { return false; });
    const Allocation large = Must(allocator.Allocate(MiB(60)));
    served += "large ";
  }));
  runtime_->SleepFor(absl::Milliseconds(175));
  Thread second = Must(runtime_->StartThread("second", [&] {
    const Allocation small = Must(allocator.Allocate(MiB(50)));
    served += "small ";
  }));
  runtime_->SleepFor(absl::Milliseconds(175));
  EXPECT_OK(held.Free());
  first.Join();
  second.Join();
  EXPECT_EQ(served, "large small ");
  ASSERT_OK(device.Suspend());
  Thread holds = Must(runtime_->StartThread("holds", [&] {
    const InterruptScope scope([] { return false; });
    EXPECT_OK(Lease::Acquire(device).status());
  }));
  runtime_->SleepFor(absl::Seconds(1));
  ASSERT_OK(device.Resume());
  holds.Join();
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_EQ(stats.waits, 1u);
  EXPECT_NEAR(absl::ToDoubleSeconds(stats.throttled), 1, 0.01);
}

TEST_F(InterruptTest, IsNotAskedAboutItsOwnWaitsAndNests) {
  const VirtualDevice device = MakeDevice("a", "");
  ASSERT_OK(device.Suspend());
  int outer = 0, inner = 0;
  const InterruptScope scope([&] {
    ++outer;
    // Waits 200 ms without being asked.
    EXPECT_EQ(Lease::Acquire(device, {.timeout = absl::Milliseconds(200)}).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    return true;
  });
  EXPECT_EQ(Lease::Acquire(device).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(outer, 1);
  {
    const InterruptScope nested([&] { return ++inner == 2; });
    const absl::Status status = Lease::Acquire(device).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("as the calling thread asked for"));
  }
  EXPECT_EQ(inner, 2);
  EXPECT_EQ(outer, 1);
  EXPECT_EQ(Lease::Acquire(device).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(outer, 2);
}

TEST_F(InterruptTest, ItsStructIsChecked) {
  EXPECT_EQ(gpushare_thread_exchange_interrupt(nullptr), GPUSHARE_INVALID_ARGUMENT);
  gpushare_interrupt interrupt = {};
  EXPECT_EQ(gpushare_thread_exchange_interrupt(&interrupt), GPUSHARE_INVALID_ARGUMENT);
  interrupt.struct_size = sizeof(interrupt);
  interrupt.interrupted = [](void*) { return 1; };
  interrupt.context = &interrupt;
  EXPECT_EQ(gpushare_thread_exchange_interrupt(&interrupt), GPUSHARE_OK);
  EXPECT_EQ(interrupt.interrupted, nullptr);
  EXPECT_EQ(interrupt.context, nullptr);
  EXPECT_EQ(interrupt.struct_size, sizeof(interrupt));
  EXPECT_EQ(gpushare_thread_exchange_interrupt(&interrupt), GPUSHARE_OK);
  EXPECT_NE(interrupt.interrupted, nullptr);
  EXPECT_EQ(interrupt.context, &interrupt);
}

// A lease that is taken and kept in the callback: the waiting request has its answer, and the thread holds the other
// lease.
TEST_F(InterruptTest, ALeaseThatIsTakenMeanwhileIsTheThreads) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  ASSERT_OK(a.Suspend());
  std::optional<Lease> kept;
  {
    const InterruptScope scope([&] {
      kept.emplace(Must(Lease::Acquire(b)));
      return false;
    });
    EXPECT_EQ(Lease::Acquire(a).status().code(), absl::StatusCode::kCancelled);
  }
  ASSERT_OK(a.Resume());
  EXPECT_EQ(Lease::Acquire(a).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_OK(kept->Release().status());
  EXPECT_OK(Lease::Acquire(a).status());
}

// Also for the same virtual device: the wait ends, and the kept lease ends when it is released.
TEST_F(InterruptTest, ALeaseOfTheSameDeviceThatIsTakenMeanwhileEndsWithItsRelease) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  ASSERT_OK(a.Suspend());
  std::optional<Lease> kept;
  int asked = 0;
  {
    const InterruptScope scope([&] {
      ++asked;
      EXPECT_OK(a.Resume());
      absl::StatusOr<Lease> taken =
          Lease::Acquire(a, {.exclusive = true, .timeout = absl::Seconds(1)});
      EXPECT_OK(taken.status());  // does not queue behind the wait that is asking
      if (taken.ok()) kept.emplace(*std::move(taken));
      return !taken.ok();
    });
    EXPECT_EQ(Lease::Acquire(a).status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(asked, 1);
  ASSERT_TRUE(kept.has_value());
  // The lease is held: the thread gets none on another device, and nobody else gets the device.
  EXPECT_EQ(Lease::Acquire(b).status().code(), absl::StatusCode::kFailedPrecondition);
  const auto others = [&] {
    absl::Status status;
    Must(runtime_->StartThread("other", [&] {
      status = Lease::Acquire(b, {.timeout = absl::Milliseconds(100)}).status();
    })).Join();
    return status;
  };
  EXPECT_EQ(others().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_OK(kept->Release().status());
  EXPECT_OK(others());
  EXPECT_OK(Lease::Acquire(b, {.timeout = absl::Milliseconds(100)}).status());
}

// A lease that is taken and released in the callback precedes the wait, which then continues; also with another
// device's lease in between.
TEST_F(InterruptTest, WhatIsTakenOfTheSameDeviceMeanwhileComesBeforeTheWait) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", ""), c = MakeDevice("c", "");
  for (const bool between : {false, true}) {
    std::optional<Lease> held = Must(Lease::Acquire(c, {.exclusive = true, .any_thread = true}));
    std::string order;
    const auto within = [&] {
      EXPECT_OK(Lease::Acquire(a, {.timeout = absl::Seconds(1)}).status());
      order += "within ";
      return false;
    };
    Thread waits = Must(runtime_->StartThread("waits", [&] {
      const InterruptScope scope([&] {
        if (!order.empty()) return false;
        if (!between) return within();
        const InterruptScope nested([&] { return order.empty() && within(); });
        EXPECT_OK(Lease::Acquire(b).status());
        return false;
      });
      EXPECT_OK(Lease::Acquire(a).status());
      order += "own ";
    }));
    runtime_->SleepFor(absl::Milliseconds(20));
    Thread later = Must(runtime_->StartThread("later", [&] {
      EXPECT_OK(Lease::Acquire(a).status());
      order += "later ";
    }));
    runtime_->SleepFor(absl::Milliseconds(180));
    EXPECT_EQ(order, "");
    held.reset();
    waits.Join();
    later.Join();
    EXPECT_EQ(order, "within own later ") << between;
  }
}

// A callback that ends its wait for good also ends an allocation that would wait.
TEST_F(InterruptTest, AReclaimThatGivesUpWaitingToo) {
  const VirtualDevice device = MakeDevice("a", "memory=64MiB");
  struct Context {
    int answer = 0, calls = 0;
  } context;
  gpushare_allocator_options options = {};
  options.struct_size = sizeof(options);
  options.over_quota = GPUSHARE_OVER_QUOTA_RECLAIM;
  options.reclaim = [](void* given, uint64_t, uint64_t) {
    auto& c = *static_cast<Context*>(given);
    ++c.calls;
    return c.answer;
  };
  options.reclaim_context = &context;
  gpushare_allocator allocator = nullptr;
  ASSERT_EQ(gpushare_allocator_create(device.handle(), &options, &allocator), GPUSHARE_OK);
  gpushare_alloc_options how = {};
  how.struct_size = sizeof(how);
  how.set = GPUSHARE_ALLOC_TIMEOUT;
  how.timeout_ns = 100'000'000;
  gpushare_device_ptr held = 0, pointer = 0;
  ASSERT_EQ(gpushare_alloc(allocator, 60 << 20, &held), GPUSHARE_OK);
  const absl::Duration begin = runtime_->Now();
  EXPECT_EQ(gpushare_alloc_with(allocator, 32 << 20, &how, &pointer), GPUSHARE_DEADLINE_EXCEEDED);
  EXPECT_GE(runtime_->Now() - begin, absl::Milliseconds(100));
  context.answer = -1;
  const absl::Duration again = runtime_->Now();
  EXPECT_EQ(gpushare_alloc_with(allocator, 32 << 20, &how, &pointer), GPUSHARE_RESOURCE_EXHAUSTED);
  EXPECT_LE(runtime_->Now() - again, absl::Milliseconds(1));
  EXPECT_EQ(context.calls, 2);
  EXPECT_EQ(gpushare_free(allocator, held), GPUSHARE_OK);
  EXPECT_EQ(gpushare_allocator_destroy(allocator), GPUSHARE_OK);
}

}  // namespace
}  // namespace gpushare
