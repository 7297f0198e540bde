// SPDX-License-Identifier: Apache-2.0
// Threads of a program on the machine's own clock. On the virtual clock one thread runs at a time, so ThreadSanitizer
// would see nothing there. The assertions hold on any machine and at any speed.
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

class ThreadsTest : public StreamTest {
 protected:
  std::string config() const override {
    return "sms=100,memory=8GiB,overlap=serial,clock=wall,devices=2,h2d=10GB/s,d2h=10GB/s";
  }

  // Runs the bodies in parallel, and calls `meanwhile` repeatedly until they are done.
  static void RunTogether(const std::vector<std::function<void()>>& bodies,
                          const std::function<void()>& meanwhile = nullptr) {
    std::atomic<size_t> running{bodies.size()};
    std::vector<std::thread> threads;
    threads.reserve(bodies.size());
    for (const std::function<void()>& body : bodies) {
      threads.emplace_back([&running, &body] {
        body();
        --running;
      });
    }
    do {
      if (meanwhile) meanwhile();
    } while (meanwhile && running > 0);
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(ThreadsTest, NobodyWaitsForItself) {
  struct Body {
    std::atomic<gpushare_thread> own{nullptr};
    std::atomic<gpushare_status> answer{GPUSHARE_OK};
  } body;
  gpushare_thread thread = nullptr;
  const auto run = [](void* argument) {
    Body& the = *static_cast<Body*>(argument);
    while (the.own == nullptr) std::this_thread::yield();
    the.answer = gpushare_thread_join(the.own);
    the.own = nullptr;
  };
  ASSERT_EQ(gpushare_thread_start(runtime_->handle(), "own", run, &body, &thread), GPUSHARE_OK);
  body.own = thread;
  while (body.own != nullptr)
    std::this_thread::yield();  // if it were joined here already, its handle would be invalid
  EXPECT_EQ(body.answer, GPUSHARE_FAILED_PRECONDITION);
  EXPECT_EQ(gpushare_thread_join(thread), GPUSHARE_OK);
}

// The engine's own thread starts, and checks whether to stop while it is told to stop.
TEST_F(ThreadsTest, GpusAreOpenedAndClosedWithoutWork) {
  for (int i = 0; i < 300; ++i) {
    const Gpu gpu = Must(Gpu::Open(*runtime_, "1"));
    EXPECT_OK(gpu.scheduler().status());
  }
}

TEST_F(ThreadsTest, TenantsLaunchAndAreLookedAt) {
  constexpr int kLaunches = 200;
  const VirtualDevice online = MakeDevice("online", "priority=high");
  const VirtualDevice heavy = MakeDevice("heavy", "compute=50%");
  const VirtualDevice light = MakeDevice("light", "cap=40%");
  std::vector<std::function<void()>> bodies;
  for (const VirtualDevice* device : {&online, &heavy, &light, &light}) {  // two share a device
    bodies.push_back([this, device] {
      const Stream stream = Must(Stream::Create(*device));
      for (int i = 0; i < kLaunches; ++i) {
        EXPECT_OK(Spin(stream, absl::Microseconds(5 + i % 40)));
        if (i % 50 == 49) EXPECT_OK(stream.Synchronize());
      }
      EXPECT_OK(stream.Synchronize());
    });
  }
  uint64_t seen = 0;
  RunTogether(bodies, [&] {
    const Snapshot snapshot = Must(Snapshot::Take(*runtime_));
    ASSERT_EQ(snapshot.devices.size(), 3u);
    uint64_t launches = 0;
    for (const VirtualDeviceStats& device : snapshot.devices) launches += device.compute.launches;
    EXPECT_GE(launches, seen);
    seen = launches;
  });
  EXPECT_EQ(Must(online.stats()).compute.launches, kLaunches);
  EXPECT_EQ(Must(heavy.stats()).compute.launches, kLaunches);
  EXPECT_EQ(Must(light.stats()).compute.launches, 2 * kLaunches);
}

TEST_F(ThreadsTest, OneStreamIsUsedByManyThreads) {
  constexpr int kThreads = 4, kLaunches = 100;
  const VirtualDevice device = MakeDevice("a", "cap=60%");
  const VirtualDevice other = MakeDevice("b", "");
  const Stream stream = Must(Stream::Create(device)), beside = Must(Stream::Create(other));
  const std::function<void()> body = [&] {
    for (int i = 0; i < kLaunches; ++i) EXPECT_OK(Spin(stream, absl::Microseconds(10)));
  };
  std::vector<std::function<void()>> bodies(kThreads, body);
  bodies.push_back([&] {
    for (int i = 0; i < kLaunches; ++i) EXPECT_OK(Spin(beside, absl::Microseconds(10)));
  });
  RunTogether(bodies);
  ASSERT_OK(stream.Synchronize());
  ASSERT_OK(beside.Synchronize());
  EXPECT_EQ(Must(device.stats()).compute.launches, kThreads * kLaunches);
  EXPECT_EQ(Must(other.stats()).compute.launches, kLaunches);
}

TEST_F(ThreadsTest, MemoryIsTakenCopiedToAndGivenBack) {
  const VirtualDevice a = MakeDevice("a", "memory=64MiB"), b = MakeDevice("b", "memory=32MiB");
  std::vector<std::function<void()>> bodies;
  for (const VirtualDevice* device : {&a, &a, &b, &b}) {
    bodies.push_back([device] {
      const Allocator allocator = Must(Allocator::Create(*device));
      const Stream stream = Must(Stream::Create(*device));
      std::vector<uint8_t> out(4096, 0x5a), in(4096);
      for (int i = 0; i < 50; ++i) {
        // Two requests of 24 MiB in a quota of 32: now and then one is refused.
        const absl::StatusOr<Allocation> memory = allocator.Allocate(MiB(24));
        if (!memory.ok()) {
          EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
          continue;
        }
        EXPECT_OK(stream.CopyToDeviceAsync(memory->pointer(), out.data(), Bytes(out.size())));
        EXPECT_OK(stream.CopyToHost(in.data(), memory->pointer(), Bytes(in.size())));
        EXPECT_EQ(in, out);
      }
    });
  }
  bodies.push_back([&] {
    for (int i = 0; i < 100; ++i) EXPECT_OK(a.Resize(i % 2 == 0 ? "memory=48MiB" : "memory=64MiB"));
  });
  RunTogether(bodies, [&] {
    for (const VirtualDeviceStats& device : Must(Snapshot::Take(*runtime_)).devices) {
      EXPECT_LE(device.memory.used, device.tenant == "a" ? MiB(64) : MiB(32));
      EXPECT_LE(device.memory.used, device.memory.peak);
    }
  });
  EXPECT_EQ(Must(a.stats()).memory.used, Bytes(0));
  EXPECT_EQ(Must(b.stats()).memory.used, Bytes(0));
  EXPECT_EQ(UsedOnDevice(), 0u);
}

TEST_F(ThreadsTest, LimitsChangeAndDevicesComeAndGoBesideLaunches) {
  constexpr int kLaunches = 300;
  const VirtualDevice steady = MakeDevice("steady", "compute=40%");
  const VirtualDevice changed = MakeDevice("changed", "cap=50%");
  std::vector<std::function<void()>> bodies;
  for (const VirtualDevice* device : {&steady, &changed}) {
    bodies.push_back([this, device] {
      const Stream stream = Must(Stream::Create(*device));
      for (int i = 0; i < kLaunches; ++i) EXPECT_OK(Spin(stream, absl::Microseconds(20)));
      EXPECT_OK(stream.Synchronize());
    });
  }
  bodies.push_back([&] {
    for (int i = 0; i < 30; ++i) {
      EXPECT_OK(changed.Resize(i % 2 == 0 ? "cap=20%" : "cap=90%,weight=3"));
      EXPECT_OK(changed.Suspend());
      EXPECT_OK(changed.Resume());
    }
  });
  bodies.push_back([this] {
    for (int i = 0; i < 20; ++i) {
      const VirtualDevice guest = MakeDevice("guest" + std::to_string(i), "memory=1MiB");
      const Stream stream = Must(Stream::Create(guest));
      for (int k = 0; k < 5; ++k) EXPECT_OK(Spin(stream, absl::Microseconds(10)));
      EXPECT_OK(stream.Synchronize());
    }
  });
  RunTogether(bodies);
  EXPECT_EQ(Must(steady.stats()).compute.launches, kLaunches);
  EXPECT_EQ(Must(changed.stats()).compute.launches, kLaunches);
  EXPECT_EQ(Must(Snapshot::Take(*runtime_)).devices.size(), 2u);
}

TEST_F(ThreadsTest, LeasesAndLaunchesTakeTurns) {
  const VirtualDevice leased = MakeDevice("leased", ""), plain = MakeDevice("plain", "");
  std::atomic<int> holders{0};
  const std::function<void()> hold = [&] {
    const Stream stream = Must(Stream::Create(leased));
    for (int i = 0; i < 20; ++i) {
      Lease lease = Must(Lease::Acquire(leased, {.exclusive = i % 4 == 0, .streams = {&stream}}));
      ++holders;
      EXPECT_OK(Spin(stream, absl::Microseconds(30)));
      EXPECT_OK(stream.Synchronize());
      EXPECT_OK(lease.Release().status());
    }
  };
  const std::function<void()> launch = [&] {
    const Stream stream = Must(Stream::Create(plain));
    for (int i = 0; i < 200; ++i) EXPECT_OK(Spin(stream, absl::Microseconds(10)));
    EXPECT_OK(stream.Synchronize());
  };
  RunTogether({hold, hold, launch, launch});
  EXPECT_EQ(holders, 40);
  EXPECT_EQ(Must(plain.stats()).compute.launches, 400u);
}

}  // namespace
}  // namespace gpushare
