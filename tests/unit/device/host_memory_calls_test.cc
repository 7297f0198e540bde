// SPDX-License-Identifier: Apache-2.0
// Calls that fail since the host has no memory change nothing, and the same call succeeds afterwards.
#include <atomic>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "gpushare/c/gpushare.h"
#include "tests/contract/failing_memory.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using work::FailingMemory;

class HostMemoryCallsTest : public DeviceTest {
 protected:
  // Makes the call again and again, each time with a later one of its allocations failing, until none fails.
  // Returns how many failed.
  static int FailEach(const std::function<gpushare_status()>& call,
                      const std::function<void(gpushare_status)>& then) {
    for (int nth = 1; nth < 1000; ++nth) {
      SCOPED_TRACE(nth);
      const int before = FailingMemory::failed();
      gpushare_status code;
      {
        const FailingMemory fails(nth);
        code = call();
      }
      const bool failed = FailingMemory::failed() != before;
      if (failed && code != GPUSHARE_OK) {
        EXPECT_EQ(code, GPUSHARE_RESOURCE_EXHAUSTED) << gpushare_last_message();
      }
      if (!failed) {
        EXPECT_EQ(code, GPUSHARE_OK) << gpushare_last_message();
      }
      then(code);
      if (!failed || HasFailure()) return nth - 1;
    }
    ADD_FAILURE() << "there is no end to its allocations";
    return 0;
  }
  // `start` begins a thread of gpushare's, which `end` ends.
  void ExpectTheClockGoesOn(const std::function<gpushare_status()>& start,
                            const std::function<gpushare_status()>& end) {
    const int failed = FailEach(start, [&](gpushare_status code) {
      if (code == GPUSHARE_OK) {
        EXPECT_EQ(end(), GPUSHARE_OK);
      }
      runtime_->SleepFor(absl::Milliseconds(1));
    });
    EXPECT_GE(failed, 4);
  }
};

// ---- Threads. The virtual clock waits for every thread that was announced to it.

TEST_F(HostMemoryCallsTest, AThreadThatIsNotStartedDoesNotStopTheClock) {
  gpushare_thread thread = nullptr;
  ExpectTheClockGoesOn(
      [&] {
        return gpushare_thread_start(
            runtime_->handle(), "thread", [](void*) {}, nullptr, &thread);
      },
      [&] { return gpushare_thread_join(thread); });
}

const gpushare_watchdog_options kWatches = {
    .struct_size = sizeof(kWatches),
    .reserved = 0,
    .limit_ns = 0,
    .callback = [](void*, const gpushare_incident*) {},
    .context = nullptr,
};

TEST_F(HostMemoryCallsTest, AWatchdogThatIsNotStartedDoesNotStopTheClock) {
  gpushare_watchdog watchdog = nullptr;
  ExpectTheClockGoesOn(
      [&] { return gpushare_watchdog_start(gpu_->handle(), &kWatches, &watchdog); },
      [&] { return gpushare_watchdog_stop(watchdog); });
}

TEST_F(HostMemoryCallsTest, AWatchdogsThreadNeedsNone) {
  gpushare_watchdog watchdog = nullptr;
  {
    const work::FailingMemoryElsewhere fails;
    ASSERT_EQ(gpushare_watchdog_start(gpu_->handle(), &kWatches, &watchdog), GPUSHARE_OK);
    runtime_->SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(gpushare_watchdog_stop(watchdog), GPUSHARE_OK);
}

// ---- The meter's thread

class HostMemoryMeterTest : public StreamTest {};

TEST_F(HostMemoryMeterTest, GoesOn) {
  const VirtualDevice device = MakeDevice("a", "");
  const Stream stream = Must(Stream::Create(device));
  const auto launch = [&](int launches = 20) {
    for (int i = 0; i < launches; ++i) ASSERT_OK(Spin(stream, absl::Microseconds(100)));
    ASSERT_OK(stream.Synchronize());
    runtime_->SleepFor(absl::Milliseconds(20));
  };
  launch();  // so that the thread has memory for its rounds
  {
    const work::FailingMemoryElsewhere fails;
    launch(500);
  }
  for (const char* call : {"cuEventElapsedTime", "cuEventQuery"}) {
    SCOPED_TRACE(call);
    ASSERT_OK(Inject(std::string("error call=") + call + " code=1"));
    const int before = FailingMemory::failed();
    {
      const work::FailingMemoryElsewhere fails;
      launch();
    }
    EXPECT_GT(FailingMemory::failed(), before);
    ASSERT_OK(Inject("clear"));
    launch();
  }
  const absl::Duration before = Must(device.stats()).compute.measured;
  launch();
  EXPECT_NEAR(absl::ToDoubleMilliseconds(Must(device.stats()).compute.measured - before), 2, 0.1);
}

// ---- Lease requests, which a thread of gpushare serves. A `done` runs on that thread, so it can make its memory fail.

class HostMemoryLeaseRequestsTest : public HostMemoryCallsTest {
 protected:
  // Makes two requests of `device`, and meanwhile the nth allocation of the thread that serves them fails (0: all do). `holder`: has the
  // GPU to itself meanwhile. Returns whether one failed.
  bool AskTwice(const VirtualDevice& device, int nth, const LeaseOptions& first,
                const LeaseOptions& second, const VirtualDevice* holder = nullptr) {
    std::optional<FailingMemory> fails;
    std::atomic<int> over{0};
    const auto await = [&](int all) {
      for (int i = 0; over < all && i < 20'000; ++i) runtime_->SleepFor(absl::Microseconds(100));
      EXPECT_EQ(over, all);
    };
    const int before = FailingMemory::failed();
    {
      LeaseRequest starts = Must(LeaseRequest::Ask(device, {}, [&] {
        fails.emplace(nth);
        ++over;
      }));
      await(1);
    }
    std::optional<Lease> holds;
    if (holder != nullptr) {
      holds.emplace(
          Must(Lease::Acquire(*holder, {.maximum = absl::Seconds(100), .exclusive = true})));
    }
    LeaseRequest one = Must(LeaseRequest::Ask(device, first, [&] { ++over; }));
    LeaseRequest other = Must(LeaseRequest::Ask(device, second, [&] { ++over; }));
    await(3);
    first_ = one.Take().status();
    second_ = other.Take().status();
    holds.reset();
    const LeaseRequest ends = Must(LeaseRequest::Ask(device, {}, [&] {
      fails.reset();
      ++over;
    }));
    await(4);
    return FailingMemory::failed() != before;
  }
  absl::Status first_, second_;
};

TEST_F(HostMemoryLeaseRequestsTest, OneThatCannotBeServedSaysSo) {
  const VirtualDevice device = MakeDevice("a", "");
  int refused = 0;
  bool failed = true;
  for (int nth = 0; failed && !HasFailure(); ++nth) {  // 0: all fail
    SCOPED_TRACE(nth);
    failed = AskTwice(device, nth, {}, {});
    for (const absl::Status& status : {first_, second_}) {
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
      if (!status.ok()) ++refused;
    }
  }
  EXPECT_GE(refused, 2);
}

TEST_F(HostMemoryLeaseRequestsTest, DeadlinesAreKept) {
  const VirtualDevice device = MakeDevice("a", ""), holder = MakeDevice("b", "");
  int failures = 0;
  bool failed = true;
  for (int nth = 0; failed && !HasFailure(); ++nth) {  // 0: all fail
    SCOPED_TRACE(nth);
    // The second one's passes while the first one waits.
    failed = AskTwice(device, nth, {.timeout = absl::Milliseconds(300)},
                      {.timeout = absl::Milliseconds(100)}, &holder);
    failures += failed ? 1 : 0;
    for (const absl::Status& status : {first_, second_}) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status)) << status;
    }
  }
  EXPECT_GE(failures, 2);
}

TEST_F(HostMemoryLeaseRequestsTest, EndAllTheSame) {
  const VirtualDevice device = MakeDevice("a", ""), holder = MakeDevice("b", "");
  const Lease holds =
      Must(Lease::Acquire(holder, {.maximum = absl::Seconds(100), .exclusive = true}));
  const LeaseRequest before = Must(LeaseRequest::Ask(device));
  std::optional<LeaseRequest> request(Must(LeaseRequest::Ask(device)));
  FailEach(
      [&] {
        request.reset();
        return GPUSHARE_OK;
      },
      [&](gpushare_status) { request.emplace(Must(LeaseRequest::Ask(device))); });
}

// ---- Tenants and virtual devices

struct NewDevice {
  bool is_child;
  const char* spec;
};

class HostMemoryVirtualDevicesTest : public HostMemoryCallsTest,
                                     public ::testing::WithParamInterface<NewDevice> {
 protected:
  Tenant MakeNew(const Tenant& parent) {
    return Must(Tenant::Create(*runtime_,
                               {.name = "new", .parent = GetParam().is_child ? &parent : nullptr}));
  }
  struct Books {
    uint64_t memory_left, used_on_device;
    double guarantee_left;
    size_t devices, in_snapshot;
    bool operator==(const Books&) const = default;
    friend void PrintTo(const Books& books, std::ostream* out) {
      *out << books.memory_left << " bytes and " << books.guarantee_left << " left, "
           << books.used_on_device << " used, " << books.devices << " virtual devices, "
           << books.in_snapshot << " in the snapshot";
    }
  };
  Books Now() {
    gpushare_room room = {};
    room.struct_size = sizeof(room);
    EXPECT_EQ(gpushare_gpu_get_room(gpu_->handle(), &room), GPUSHARE_OK);
    return {room.memory_left, UsedOnDevice(), room.guarantee_left,
            static_cast<size_t>(room.virtual_devices),
            Must(Snapshot::Take(*runtime_)).devices.size()};
  }
};

TEST_P(HostMemoryVirtualDevicesTest, OneThatIsNotCreatedLeavesNothing) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice other =
      Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB,memory_cap=2GiB,compute=40%"));
  const Tenant tenant = MakeNew(team);
  gpushare_spec spec = {};
  spec.struct_size = sizeof(spec);
  const std::string_view text = GetParam().spec;
  ASSERT_EQ(gpushare_spec_parse(text.data(), text.size(), &spec), GPUSHARE_OK);
  gpushare_vdev device = nullptr;
  const auto create = [&] {
    return gpushare_vdev_create(gpu_->handle(), tenant.handle(), &spec, &device);
  };
  const Books before = Now();
  const int failed = FailEach(create, [&](gpushare_status code) {
    if (code == GPUSHARE_OK) {
      ASSERT_EQ(gpushare_vdev_destroy(device), GPUSHARE_OK);
    }
    EXPECT_EQ(Now(), before);
    ASSERT_OK(other.Resize("weight=2"));  // the arbiter checks its books, in debug builds
    const Allocator allocator = Must(Allocator::Create(other));
    const Allocation allocation = Must(allocator.Allocate(MiB(1)));
  });
  EXPECT_GE(failed, 10);
  ASSERT_EQ(create(), GPUSHARE_OK) << gpushare_last_message();
  EXPECT_EQ(Now().devices, before.devices + 1);
  ASSERT_EQ(gpushare_vdev_destroy(device), GPUSHARE_OK);
  EXPECT_EQ(Now(), before);
}

TEST_P(HostMemoryVirtualDevicesTest, EndsAllTheSame) {
  const Tenant team = MakeTenant("team");
  const VirtualDevice other =
      Must(VirtualDevice::Create(*gpu_, team, "memory=1GiB,memory_cap=2GiB,compute=40%"));
  const Tenant tenant = MakeNew(team);
  const Books before = Now();
  VirtualDevice device = Must(VirtualDevice::Create(*gpu_, tenant, GetParam().spec));
  FailEach(
      [&] {
        std::optional<VirtualDevice> one(std::move(device));
        one.reset();
        return GPUSHARE_OK;
      },
      [&](gpushare_status) {
        EXPECT_EQ(Now(), before);
        device = Must(VirtualDevice::Create(*gpu_, tenant, GetParam().spec));
      });
}

INSTANTIATE_TEST_SUITE_P(Specs, HostMemoryVirtualDevicesTest,
                         ::testing::Values(NewDevice{false, "memory=1GiB"},
                                           NewDevice{false,
                                                     "memory=1GiB,memory_cap=2GiB,compute=10%"},
                                           NewDevice{false, "cap=30%,priority=low"},
                                           NewDevice{true, "memory=512MiB,guarantee=10%"},
                                           NewDevice{true, "priority=low"},
                                           NewDevice{false, "memory=1GiB,isolation=context"},
                                           NewDevice{false, "compute=25%,isolation=green"}));

TEST_F(HostMemoryCallsTest, AResizeThatFailsChangesNothing) {
  const VirtualDevice device = MakeDevice("a", "memory=1GiB,memory_cap=2GiB,compute=10%");
  const Allocator allocator = Must(Allocator::Create(device));
  const Allocation allocation = Must(allocator.Allocate(MiB(600)));
  const auto left = [&] {
    gpushare_room room = {};
    room.struct_size = sizeof(room);
    EXPECT_EQ(gpushare_gpu_get_room(gpu_->handle(), &room), GPUSHARE_OK);
    return std::pair(room.memory_left, room.guarantee_left);
  };
  const std::string before = Must(device.spec()).ToString();
  const auto left_before = left();
  const std::string_view text = "memory=512MiB,memory_cap=1GiB,compute=20%";  // less than it holds
  gpushare_spec spec = {};
  spec.struct_size = sizeof(spec);
  ASSERT_EQ(gpushare_spec_parse(text.data(), text.size(), &spec), GPUSHARE_OK);
  const int failed = FailEach([&] { return gpushare_vdev_resize(device.handle(), &spec); },
                              [&](gpushare_status code) {
                                if (code == GPUSHARE_OK) return;
                                EXPECT_EQ(Must(device.spec()).ToString(), before);
                                EXPECT_EQ(left(), left_before);
                              });
  EXPECT_GE(failed, 1);
}

TEST_F(HostMemoryCallsTest, ATenantThatIsNotCreatedLeavesNothing) {
  gpushare_tenant_options options = {};
  options.struct_size = sizeof(options);
  options.name = "a-name-that-is-too-long-to-be-kept-in-a-string-itself";
  const gpushare_label label = {"purpose", "a-value-that-is-too-long-to-be-kept-in-a-string"};
  options.labels = &label;
  options.label_count = 1;
  const Tenant team = MakeTenant("team");
  options.parent = team.handle();
  gpushare_tenant tenant = nullptr;
  const auto create = [&] { return gpushare_tenant_create(runtime_->handle(), &options, &tenant); };
  const int failed = FailEach(create, [&](gpushare_status code) {
    if (code != GPUSHARE_OK) {
      ASSERT_EQ(create(), GPUSHARE_OK) << gpushare_last_message();
    }
    ASSERT_EQ(gpushare_tenant_destroy(tenant), GPUSHARE_OK);
  });
  EXPECT_GE(failed, 5);
}

// ---- Allocators

class HostMemoryAllocatorsTest : public HostMemoryCallsTest,
                                 public ::testing::WithParamInterface<AllocationStrategy> {};

TEST_P(HostMemoryAllocatorsTest, EndAllTheSame) {
  const VirtualDevice device = MakeDevice("a", "memory=512MiB");
  const uint64_t before = UsedOnDevice();
  std::optional<Allocator> allocator;
  const auto create = [&] {
    allocator.emplace(Must(Allocator::Create(device, {.strategy = GetParam()})));
    for (const Bytes size : {MiB(30), MiB(1), MiB(40)}) {
      static_cast<void>(Must(allocator->Allocate(size)));
    }
  };
  create();
  FailEach(
      [&] {
        allocator.reset();
        return GPUSHARE_OK;
      },
      [&](gpushare_status) {
        EXPECT_EQ(UsedOnDevice(), before);
        EXPECT_EQ(Must(Snapshot::Take(*runtime_)).devices.at(0).memory.used, Bytes(0));
        create();
      });
}

INSTANTIATE_TEST_SUITE_P(Strategies, HostMemoryAllocatorsTest,
                         ::testing::Values(AllocationStrategy::kSuballocating,
                                           AllocationStrategy::kPool,
                                           AllocationStrategy::kSwappable));

}  // namespace
}  // namespace gpushare
