// SPDX-License-Identifier: Apache-2.0
// Cooperative launches over several devices, through the layer `work`.
#include <memory>
#include <new>
#include <vector>

#include "tests/contract/failing_memory.h"
#include "tests/contract/work_devices_bed.h"

namespace gpushare::work {
namespace {

class MultiDeviceTest : public TwoGpusTest {
 protected:
  // A kernel that fills each device for `cost`; with `turned`, the second device's launch comes first in the list.
  CUresult Launch(const Tenant& tenant, Nanos cost, bool turned = false, unsigned grid = 100) {
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    CUDA_LAUNCH_PARAMS both[2] = {};
    for (CUDA_LAUNCH_PARAMS& one : both) {
      one.gridDimX = grid;
      one.gridDimY = one.gridDimZ = one.blockDimY = one.blockDimZ = 1;
      one.blockDimX = 1024;
      one.kernelParams = params;
    }
    both[turned].function = spin_;
    both[turned].hStream = tenant.stream;
    both[!turned].function = other_spin_;
    both[!turned].hStream = streams_.at(&tenant);
    return calls_->LaunchCooperativeKernelMultiDevice(tenant.payer(), both, 2, 0);
  }
};

TEST_F(MultiDeviceTest, EachDeviceIsChargedOnce) {
  const Tenant& t = AddOnBoth({}, {});
  for (int i = 0; i < 20; ++i) ASSERT_CU(Launch(t, Millis(1), i % 2 != 0));
  ASSERT_CU(cu_->StreamSynchronize(t.stream));
  ASSERT_CU(cu_->StreamSynchronize(streams_.at(&t)));
  Rest();
  for (gate::Gate* const gate : {t.gate, There(t)}) {
    EXPECT_EQ(gate->stats().launches, 20u);
    EXPECT_NEAR(Ms(gate->stats().measured), 20, 1);
  }
}

TEST_F(MultiDeviceTest, WhatTheDriverRefusesCostsNothing) {
  const Tenant& t = AddOnBoth({}, {});
  EXPECT_EQ(Launch(t, Millis(1), false, 100'000), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EXPECT_EQ(t.gate->stats().launches + There(t)->stats().launches, 0u);
}

// A launch that one of the devices may not run yet runs on neither.
TEST_F(MultiDeviceTest, TheTighterLimitHoldsBoth) {
  const Tenant& t = AddOnBoth({}, {.limits = {.cap = 0.25}});
  const Time began = clock().Now();
  for (int i = 0; i < 50; ++i) ASSERT_CU(Launch(t, Millis(1)));
  ASSERT_CU(cu_->StreamSynchronize(t.stream));
  ASSERT_CU(cu_->StreamSynchronize(streams_.at(&t)));
  // 50 ms at a quarter, minus the saved-up credit.
  EXPECT_NEAR(Ms(clock().Now() - began), 190, 20);
}

// The launch has the turn on one device and not yet on the other when memory runs out: the first device must not stay
// blocked.
TEST_F(MultiDeviceTest, WhereverMemoryEndsALaunchTheOthersGoOn) {
  int missed = 0;
  for (int nth = 1; nth <= 120; ++nth) {
    TearDown();
    SetUp();
    const Tenant &t = AddOnBoth({}, {}), &other = AddOnBoth({}, {});
    try {
      const FailingMemory failing(nth);
      static_cast<void>(Launch(t, Micros(20)));
    } catch (const std::bad_alloc&) {
      ++missed;
    }
    const Time began = clock().Now();
    ASSERT_CU(Launch(other, Micros(20)));
    EXPECT_LT(Ms(clock().Now() - began), 5)
        << nth;  // the launch is noticed when the stream has been silent for 1 ms
    ASSERT_CU(cu_->StreamSynchronize(other.stream));
    ASSERT_CU(cu_->StreamSynchronize(streams_.at(&other)));
    Rest();
    EXPECT_EQ(t.gate->view().outstanding, Nanos(0)) << nth;
    EXPECT_EQ(There(t)->view().outstanding, Nanos(0)) << nth;
  }
  EXPECT_GT(missed, 0);
}

// Whichever allocation of a whole sequence fails, every launch number that was handed out has its record: each
// thread's later launch ends, and nothing stays in flight.
TEST_F(MultiDeviceTest, WhereverMemoryEndsASequenceEachThreadLaunchesOn) {
  int missed = 0;
  for (int nth = 1, reached = 1; reached > 0; ++nth) {
    TearDown();
    SetUp();
    const Tenant &t = AddOnBoth({}, {}), &other = AddOnBoth({}, {});
    const CUstream more = NewStream(t);
    const int before = FailingMemory::failed();
    {
      const FailingMemory failing(nth);
      const auto tried = [&](auto&& call) {
        try {
          static_cast<void>(call());
        } catch (const std::bad_alloc&) {
          ++missed;
        }
      };
      for (int i = 0; i < 12; ++i) {
        tried([&] { return Launch(t, Micros(20), i % 2 != 0); });
        for (const CUstream stream : {more, t.stream, more, t.stream}) {
          tried([&] { return Spin(t, Micros(10), stream); });
        }
        tried([&] {
          return calls_->LaunchHostFunc(
              t.payer(), more, [](void*) {}, nullptr);
        });
        tried([&] { return Launch(t, Micros(20), false, 100'000); });  // refused by the driver
        tried([&] { return calls_->StreamSynchronize(t.payer(), more); });
      }
    }
    reached = FailingMemory::failed() - before;
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    int done = 0;
    for (const Tenant* tenant : {&t, &other, &t}) {
      threads.push_back(Thread([&, tenant] {
        ASSERT_CU(Spin(*tenant, Micros(20)));
        ASSERT_CU(Launch(*tenant, Micros(20)));
        ++done;
      }));
    }
    const Time bound = In(Millis(50));
    while (done < 3 && clock().Now() < bound) Rest(Millis(1));
    ASSERT_EQ(done, 3) << nth;
    for (const auto& thread : threads) thread->Join();
    ASSERT_CU(cu_->StreamSynchronize(other.stream));
    ASSERT_CU(cu_->StreamSynchronize(streams_.at(&other)));
    Rest();
    for (const Tenant* tenant : {&t, &other}) {
      EXPECT_EQ(tenant->gate->view().outstanding, Nanos(0)) << nth;
      EXPECT_EQ(There(*tenant)->view().outstanding, Nanos(0)) << nth;
    }
  }
  EXPECT_GT(missed, 0);
}

// Work of another tenant that is open on the stream is closed at once, not after a long silence.
TEST_F(MultiDeviceTest, AnothersWorkOnItsStreamIsToldApartAtOnce) {
  const Tenant &a = AddOnBoth({}, {}), &b = AddOnBoth({}, {});
  for (int i = 0; i < 20; ++i) {
    ASSERT_CU(Spin(a, Micros(20), b.stream));
    ASSERT_CU(Spin(b, Micros(20), b.stream));
    ASSERT_CU(cu_->StreamSynchronize(b.stream));
  }
  Rest();
  ASSERT_CU(Spin(a, Micros(20), b.stream));
  const uint64_t markers = a.gate->stats().markers;
  const Time began = clock().Now();
  ASSERT_CU(Launch(b, Micros(20)));
  EXPECT_LT(Ms(clock().Now() - began), 0.5);
  EXPECT_GT(a.gate->stats().markers, markers);
}

// Two tenants that name the devices in different orders do not deadlock.
TEST_F(MultiDeviceTest, TwoThatLaunchOverBothGoOn) {
  const Tenant &a = AddOnBoth({}, {}), &b = AddOnBoth({}, {});
  int done = 0;
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  for (const Tenant* tenant : {&a, &b}) {
    threads.push_back(Thread([&, tenant] {
      for (int i = 0; i < 100; ++i) ASSERT_CU(Launch(*tenant, Micros(100), tenant == &b));
      ++done;
    }));
  }
  for (const auto& thread : threads) thread->Join();
  EXPECT_EQ(done, 2);
  EXPECT_EQ(a.gate->stats().launches + There(b)->stats().launches, 200u);
}

}  // namespace
}  // namespace gpushare::work
