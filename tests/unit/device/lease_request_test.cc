// SPDX-License-Identifier: Apache-2.0
// Asynchronous lease requests: their outcomes, and which of grant, cancellation, deadline and end comes first.
#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

class LeaseRequestTest : public StreamTest {
 protected:
  // Waits until `ready()`, at most for `most`.
  bool Await(const std::function<bool()>& ready, absl::Duration most = absl::Seconds(2)) {
    const absl::Duration step = absl::Microseconds(20);
    for (absl::Duration waited; waited < most; waited += step) {
      if (ready()) return true;
      runtime_->SleepFor(step);
    }
    return ready();
  }
  static bool IsReadable(int fd) {
    pollfd polled = {.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&polled, 1, 0) == 1;
  }
  void Race(int rounds);
};

TEST_F(LeaseRequestTest, TellsByACallAndByADescriptorWhenItIsThere) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  std::optional<Lease> holds(Must(Lease::Acquire(a, {.exclusive = true})));
  std::atomic<int> calls{0};
  LeaseRequest request =
      Must(LeaseRequest::Ask(b, {.timeout = absl::Seconds(100)}, [&] { ++calls; }));
  const int fd = Must(request.descriptor());
  EXPECT_EQ(Must(request.descriptor()), fd);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(IsReadable(fd));
  EXPECT_EQ(request.Take().status().code(), absl::StatusCode::kUnavailable);
  holds.reset();
  ASSERT_TRUE(Await([&] { return calls == 1; }));
  EXPECT_TRUE(IsReadable(fd));
  Lease lease = Must(request.Take());
  EXPECT_EQ(request.Take().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(IsReadable(fd));
  // The taken lease stays valid, whatever happens to the request.
  EXPECT_OK(request.Cancel());
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_OK(lease.Release().status());
  EXPECT_EQ(calls, 1);
}

// A request is not bound to a thread: a thread that holds a lease of another virtual device may make one.
TEST_F(LeaseRequestTest, IsMeasuredOnItsStreamsLikeAnother) {
  const VirtualDevice device = MakeDevice("a", ""), other = MakeDevice("b", "");
  const Stream stream = Must(Stream::Create(device));
  const Lease beside = Must(Lease::Acquire(other));
  LeaseRequest request =
      Must(LeaseRequest::Ask(device, {.hint = absl::Milliseconds(1), .streams = {&stream}}));
  absl::StatusOr<Lease> lease = absl::UnavailableError("");
  ASSERT_TRUE(Await([&] { return (lease = request.Take()).ok(); })) << lease.status();
  for (int i = 0; i < 10; ++i) ASSERT_OK(Spin(stream, absl::Microseconds(100)));
  EXPECT_OK(lease->Release().status());
  ASSERT_OK(stream.Synchronize());
  runtime_->SleepFor(absl::Milliseconds(5));
  const VirtualDeviceStats stats = Must(device.stats());
  EXPECT_LE(stats.compute.launches, 1u);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(stats.compute.measured), 1.0, 0.2);
}

TEST_F(LeaseRequestTest, WrongOnesAreRefusedAtOnce) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  const Stream stream = Must(Stream::Create(b));
  EXPECT_EQ(LeaseRequest::Ask(a, {.streams = {&stream}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LeaseRequest::Ask(a, {.hint = absl::Hours(1)}).status().code(),
            absl::StatusCode::kInvalidArgument);
  gpushare_lease_options options = {};
  options.struct_size = sizeof(options);
  EXPECT_EQ(gpushare_lease_request_create(a.handle(), &options, nullptr, nullptr, nullptr),
            GPUSHARE_INVALID_ARGUMENT);
  EXPECT_EQ(gpushare_lease_request_cancel(nullptr), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_EQ(gpushare_lease_request_destroy(nullptr), GPUSHARE_INVALID_ARGUMENT);
}

TEST_F(LeaseRequestTest, OneThatIsCalledOffLetsTheNextGoOnAtOnce) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  std::optional<Lease> holds(Must(Lease::Acquire(a, {.exclusive = true})));
  std::atomic<int> calls{0};
  std::optional<LeaseRequest> first(
      Must(LeaseRequest::Ask(b, {.exclusive = true}, [&] { ++calls; })));
  LeaseRequest second = Must(LeaseRequest::Ask(b, {}, [&] { calls += 10; }));
  LeaseRequest third = Must(LeaseRequest::Ask(b, {}, [&] { calls += 100; }));
  runtime_->SleepFor(absl::Milliseconds(1));
  const int fd = Must(first->descriptor());
  const absl::Duration begin = runtime_->Now();
  ASSERT_OK(first->Cancel());
  ASSERT_OK(second.Cancel());
  EXPECT_TRUE(IsReadable(fd));
  EXPECT_EQ(first->Take().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second.Take().status().code(), absl::StatusCode::kCancelled);
  first.reset();  // its thread has left the gate, where nothing else has changed
  EXPECT_LT(runtime_->Now() - begin, absl::Milliseconds(1));
  const absl::Duration off = runtime_->Now();
  holds.reset();
  ASSERT_TRUE(Await([&] { return calls == 100; }));
  EXPECT_LT(runtime_->Now() - off, absl::Milliseconds(1));
  EXPECT_OK(third.Take().status());
  EXPECT_EQ(calls, 100);
}

// A lease that was acquired and not taken is given back by a cancellation or by the end of the request.
TEST_F(LeaseRequestTest, WhatNobodyTakesGoesBack) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  for (const bool ends : {false, true}) {
    std::atomic<int> calls{0};
    std::optional<LeaseRequest> request(
        Must(LeaseRequest::Ask(a, {.exclusive = true}, [&] { ++calls; })));
    ASSERT_TRUE(Await([&] { return calls == 1; }));
    EXPECT_EQ(Lease::Acquire(b, {.timeout = absl::Milliseconds(1)}).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    if (ends) {
      request.reset();
    } else {
      ASSERT_OK(request->Cancel());
      EXPECT_EQ(request->Take().status().code(), absl::StatusCode::kCancelled);
    }
    EXPECT_OK(Lease::Acquire(b, {.timeout = absl::Milliseconds(1)}).status());
  }
}

TEST_F(LeaseRequestTest, TheDeadlineOfOneThatWaitsBehindAnotherIsKept) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  const Lease holds = Must(Lease::Acquire(a, {.maximum = absl::Seconds(100), .exclusive = true}));
  std::atomic<int> calls{0};
  LeaseRequest first =
      Must(LeaseRequest::Ask(b, {.timeout = absl::Milliseconds(300)}, [&] { ++calls; }));
  LeaseRequest second =
      Must(LeaseRequest::Ask(b, {.timeout = absl::Milliseconds(100)}, [&] { calls += 10; }));
  const absl::Duration asked = runtime_->Now();
  ASSERT_TRUE(Await([&] { return calls == 10; }));
  EXPECT_GE(runtime_->Now() - asked, absl::Milliseconds(99));
  EXPECT_LE(runtime_->Now() - asked, absl::Milliseconds(151));
  EXPECT_EQ(second.Take().status().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(Await([&] { return calls == 11; }));
  EXPECT_GE(runtime_->Now() - asked, absl::Milliseconds(299));
  EXPECT_LE(runtime_->Now() - asked, absl::Milliseconds(302));
  EXPECT_EQ(first.Take().status().code(), absl::StatusCode::kDeadlineExceeded);
}

// The callback may make another request, take its own lease, and cancel and end requests, its own too.
TEST_F(LeaseRequestTest, ACallMayCallEverything) {
  const VirtualDevice a = MakeDevice("a", "");
  gpushare_lease_options options = {};
  options.struct_size = sizeof(options);
  options.timeout_ns = GPUSHARE_FOREVER;
  struct Context {
    gpushare_vdev device;
    gpushare_lease_options* options;
    gpushare_lease_request request = nullptr;
    gpushare_status taken = GPUSHARE_UNKNOWN, ended = GPUSHARE_UNKNOWN;
    std::atomic<bool> over{false};
  } context{a.handle(), &options};
  const auto call = [](void* at) {
    Context& own = *static_cast<Context*>(at);
    gpushare_lease lease = nullptr;
    own.taken = gpushare_lease_request_take(own.request, &lease);
    gpushare_lease_release(lease, nullptr);
    own.ended = gpushare_lease_request_destroy(own.request);
    own.over = true;
  };
  // An exclusive lease, so that the callback is not called before `request` is set.
  std::optional<Lease> holds(Must(Lease::Acquire(MakeDevice("b", ""), {.exclusive = true})));
  ASSERT_EQ(gpushare_lease_request_create(a.handle(), &options, call, &context, &context.request),
            GPUSHARE_OK);
  holds.reset();
  ASSERT_TRUE(Await([&] { return context.over.load(); }));
  EXPECT_EQ(context.taken, GPUSHARE_OK);
  EXPECT_EQ(context.ended, GPUSHARE_OK);
  EXPECT_EQ(gpushare_lease_request_destroy(context.request), GPUSHARE_INVALID_ARGUMENT);
}

// What a call lets go of is there until it has returned, and then goes with all that it alone kept.
TEST_F(LeaseRequestTest, ACallMayEndItsOwnRequestAndOthers) {
  std::optional<VirtualDevice> a(MakeDevice("a", "memory=1GiB"));
  EXPECT_TRUE(Must(Must(Allocator::Create(*a)).AllocateRaw(MiB(1))));
  std::optional<Lease> holds(Must(Lease::Acquire(MakeDevice("b", ""), {.exclusive = true})));
  struct Server {
    std::optional<LeaseRequest> own, behind;
    std::string said;
    bool over = false;
  } server;
  bool called = false;
  server.own.emplace(Must(LeaseRequest::Ask(*a, {}, [&server, text = std::string(100, 'x')] {
    server.behind.reset();
    server.own.reset();
    server.said = text;  // which was not destroyed with the request
    server.over = true;
  })));
  server.behind.emplace(Must(LeaseRequest::Ask(*a, {}, [&called] { called = true; })));
  a.reset();
  holds.reset();
  ASSERT_TRUE(Await([&] { return server.over; }));
  EXPECT_EQ(server.said, std::string(100, 'x'));
  // The virtual device was the requests' alone.
  EXPECT_TRUE(Await([&] { return Must(Snapshot::Take(*runtime_)).devices.empty(); }));
  EXPECT_FALSE(called);
  runtime_->SleepFor(absl::Milliseconds(1));  // the thread on which that was ends
}

// A new request takes the place of the one whose call asks for it.
TEST_F(LeaseRequestTest, ACallMayReplaceItsOwnRequest) {
  const VirtualDevice a = MakeDevice("a", "");
  std::optional<LeaseRequest> request;
  std::atomic<int> calls{0};
  std::function<void()> next = [&] {
    EXPECT_OK(request->Take().status());
    if (++calls < 50) *request = Must(LeaseRequest::Ask(a, {}, next));
  };
  std::optional<Lease> holds(Must(Lease::Acquire(MakeDevice("b", ""), {.exclusive = true})));
  request.emplace(Must(LeaseRequest::Ask(a, {}, next)));
  holds.reset();
  EXPECT_TRUE(Await([&] { return calls == 50; }));
  request.reset();
}

// Ending a request waits for its callback, and no callback runs afterwards.
TEST_F(LeaseRequestTest, NoCallIsRunningOrComesWhenARequestHasEnded) {
  const VirtualDevice a = MakeDevice("a", "");
  std::atomic<bool> runs{false}, over{false};
  std::optional<LeaseRequest> request(Must(LeaseRequest::Ask(a, {}, [&] {
    runs = true;
    runtime_->SleepFor(absl::Milliseconds(5));
    over = true;
  })));
  ASSERT_TRUE(Await([&] { return runs.load(); }));
  EXPECT_FALSE(over);
  request.reset();
  EXPECT_TRUE(over);
}

// The handles of the virtual device and of the runtime may be closed first.
TEST_F(LeaseRequestTest, KeepsItsVirtualDevice) {
  std::optional<VirtualDevice> a(MakeDevice("a", ""));
  std::atomic<int> calls{0};
  std::optional<Lease> holds(Must(Lease::Acquire(MakeDevice("b", ""), {.exclusive = true})));
  std::optional<LeaseRequest> request(Must(LeaseRequest::Ask(*a, {}, [&] { ++calls; })));
  a.reset();
  holds.reset();
  ASSERT_TRUE(Await([&] { return calls == 1; }));
  EXPECT_OK(request->Take().status());
  request.reset();
}

// Several threads request, cancel, take and end at random, with deadlines close to the grant. Whichever comes first,
// each callback runs once, or for a cancelled request not after its end, and in the end no lease is held.
void LeaseRequestTest::Race(int rounds) {
  const VirtualDevice a = MakeDevice("a", ""), b = MakeDevice("b", "");
  std::atomic<int> taken{0}, called_off{0};
  std::atomic<bool> wrong{false};
  std::vector<Thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.push_back(Must(runtime_->StartThread("asks" + std::to_string(n), [&, n] {
      std::minstd_rand random(static_cast<unsigned>(n + 1));
      for (int i = 0; i < rounds; ++i) {
        auto calls = std::make_shared<std::atomic<int>>(0);
        const absl::Duration timeout = absl::Microseconds(20 + random() % 300);
        absl::StatusOr<LeaseRequest> request =
            LeaseRequest::Ask(n % 2 == 0 ? a : b,
                              {.exclusive = random() % 2 == 0,
                               .timeout = random() % 2 == 0 ? timeout : absl::InfiniteDuration()},
                              [calls] { ++*calls; });
        if (!request.ok()) {
          wrong = true;
          return;
        }
        runtime_->SleepFor(absl::Microseconds(random() % 200));
        if (random() % 3 == 0) wrong = wrong || !request->Cancel().ok();
        absl::StatusOr<Lease> lease = request->Take();
        for (int wait = 0; absl::IsUnavailable(lease.status()) && wait < 50; ++wait) {
          runtime_->SleepFor(absl::Microseconds(10));
          lease = request->Take();
        }
        if (lease.ok()) {
          ++taken;
          runtime_->SleepFor(absl::Microseconds(random() % 50));
        } else if (absl::IsCancelled(lease.status())) {
          ++called_off;
        } else if (!absl::IsDeadlineExceeded(lease.status()) &&
                   !absl::IsUnavailable(lease.status())) {
          wrong = true;
        }
        const bool had = lease.ok();
        if (random() % 2 == 0) lease = absl::CancelledError("");  // before its request, or after
        request = absl::CancelledError("");
        const int at_the_end = *calls;
        if (at_the_end > 1 || (had && at_the_end != 1)) wrong = true;
        runtime_->SleepFor(absl::Microseconds(random() % 20));
        if (*calls != at_the_end) wrong = true;
      }
    })));
  }
  for (Thread& thread : threads) thread.Join();
  EXPECT_FALSE(wrong);
  EXPECT_GT(taken, rounds / 2);
  EXPECT_GT(called_off, rounds / 10);
  for (const VirtualDevice* device : {&a, &b}) {
    EXPECT_OK(
        Lease::Acquire(*device, {.exclusive = true, .timeout = absl::Milliseconds(100)}).status());
  }
}

TEST_F(LeaseRequestTest, RacesOfGrantCallOffDeadlineAndEnd) { Race(100); }

// The same with threads that really run in parallel.
class LeaseRequestOnTheMachinesClockTest : public LeaseRequestTest {
 protected:
  std::string config() const override { return "sms=100,memory=8GiB,devices=2,clock=wall"; }
};

TEST_F(LeaseRequestOnTheMachinesClockTest, RacesOfGrantCallOffDeadlineAndEnd) { Race(100); }

}  // namespace
}  // namespace gpushare
