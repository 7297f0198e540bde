// SPDX-License-Identifier: Apache-2.0
// The same device on the machine's clock. The tests assert only what holds on any machine: order, lower bounds, and
// that waits end.
#include <pthread.h>
#include <sched.h>

#include <atomic>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class WallClockTest : public SimTest {
 protected:
  void SetUp() override { Start(std::string(kPlain) + ",clock=wall"); }
};

class CancellableTest : public SimTest {
 protected:
  void SetUp() override { Start(std::string(kPlain) + ",clock=wall,cancellable=1"); }
};

TEST_F(WallClockTest, TimeIsTheMachines) {
  EXPECT_EQ(0, gpushare_sim_clock_is_virtual());
  const uint64_t start = Now();
  gpushare_sim_spend(2'000'000);
  EXPECT_GE(Now() - start, 2'000'000u);
}

TEST_F(WallClockTest, KernelsTakeTheirTimeAndWaitsEnd) {
  const CUstream a = NewStream();
  const CUevent start_event = NewEvent(), end_event = NewEvent();
  const uint64_t start = Now();
  ASSERT_CU(cuEventRecord(start_event, a));
  for (int i = 0; i < 3; ++i) ASSERT_CU(Spin(a, 2'000'000, 100));
  ASSERT_CU(cuEventRecord(end_event, a));
  EXPECT_GE(DoneAt(a, start), 6'000'000u);
  float ms = 0;
  ASSERT_CU(cuEventElapsedTime(&ms, start_event, end_event));
  EXPECT_GE(ms, 5.9999f);
  EXPECT_DOUBLE_EQ(Truth(0).work_ns, 6'000'000);
}

TEST_F(WallClockTest, EventsHappenAtTheirTimeThoughNobodyLooks) {
  const CUstream a = NewStream();
  const CUevent first = NewEvent(), second = NewEvent();
  ASSERT_CU(Spin(a, 1'000'000, 100));
  ASSERT_CU(cuEventRecord(first, a));
  ASSERT_CU(Spin(a, 1'000'000, 100));
  ASSERT_CU(cuEventRecord(second, a));
  gpushare_sim_spend(20'000'000);  // both have long ended when the driver is asked
  EXPECT_CU(cuEventQuery(second));
  float ms = 0;
  ASSERT_CU(cuEventElapsedTime(&ms, first, second));
  EXPECT_FLOAT_EQ(ms, 1.0f);
}

TEST_F(WallClockTest, ThreadsRunTogether) {
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_CU(cuCtxSetCurrent(context_));
      CUstream stream;
      EXPECT_CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -i));
      for (int step = 0; step < 50; ++step) {
        EXPECT_CU(Spin(stream, 20'000, static_cast<unsigned>(30 + step)));
        if (step % 7 == 0) {
          EXPECT_CU(cuStreamSynchronize(stream));
        }
      }
      EXPECT_CU(cuStreamSynchronize(stream));
      EXPECT_CU(cuStreamDestroy(stream));
      ++done;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, 4);
  EXPECT_EQ(Truth(0).kernels, 200u);
}

// The driver is not a cancellation point: a thread that is cancelled during a wait in the driver ends after the call,
// and leaves nothing behind.
TEST_F(WallClockTest, AThreadIsCancelledWhileItWaits) {
  const CUstream a = NewStream();
  for (int round = 0; round < 20; ++round) {
    ASSERT_CU(Spin(a, 5'000'000, 100));
    struct Waiter {
      CUcontext context;
      CUstream stream;
      std::atomic<bool> waits{false};
      CUresult waited = CUDA_ERROR_UNKNOWN;
    } waiter = {.context = context_, .stream = a};
    pthread_t thread;
    ASSERT_EQ(0, pthread_create(
                     &thread, nullptr,
                     [](void* argument) -> void* {
                       auto* const self = static_cast<Waiter*>(argument);
                       EXPECT_CU(cuCtxSetCurrent(self->context));
                       self->waits = true;
                       self->waited = cuStreamSynchronize(self->stream);
                       for (;;) pthread_testcancel();
                     },
                     &waiter));
    while (!waiter.waits) sched_yield();
    ASSERT_EQ(0, pthread_cancel(thread));
    void* result = nullptr;
    ASSERT_EQ(0, pthread_join(thread, &result));
    EXPECT_EQ(PTHREAD_CANCELED, result);
    EXPECT_CU(waiter.waited);
  }
  EXPECT_CU(cuStreamQuery(a));
}

// Like in a driver that waits in poll(): a cancelled call has no effect, and the next one finds a consistent state.
TEST_F(CancellableTest, AWaitMayBeACancellationPoint) {
  const CUstream a = NewStream();
  struct Waiter {
    CUcontext context;
    CUdeviceptr memory = 0;
    std::atomic<bool> waits{false}, returned{false};
  };
  for (int round = 0; round < 20; ++round) {
    Waiter waiter{.context = context_};
    ASSERT_CU(cuMemAlloc(&waiter.memory, 1 << 20));
    const uint64_t began = Now();
    ASSERT_CU(Spin(a, 50'000'000, 100));
    pthread_t thread;
    ASSERT_EQ(0, pthread_create(
                     &thread, nullptr,
                     [](void* argument) -> void* {
                       auto* const self = static_cast<Waiter*>(argument);
                       EXPECT_CU(cuCtxSetCurrent(self->context));
                       self->waits = true;
                       EXPECT_CU(cuMemFree(self->memory));
                       self->returned = true;
                       for (;;) pthread_testcancel();
                     },
                     &waiter));
    while (!waiter.waits) sched_yield();
    ASSERT_EQ(0, pthread_cancel(thread));
    void* result = nullptr;
    ASSERT_EQ(0, pthread_join(thread, &result));
    EXPECT_EQ(PTHREAD_CANCELED, result);
    if (Now() - began < 50'000'000) {
      EXPECT_FALSE(waiter.returned);
    }
    EXPECT_CU(cuStreamSynchronize(a));
    EXPECT_EQ(waiter.returned ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, cuMemFree(waiter.memory));
  }
}

TEST_F(WallClockTest, HostFunctionsRunWithNobodyInTheDriver) {
  const CUstream a = NewStream();
  std::atomic<uint32_t> word{0};
  ASSERT_CU(Spin(a, 3'000'000, 10));
  ASSERT_CU(cuLaunchHostFunc(
      a,
      [](void* data) {
        static_cast<std::atomic<uint32_t>*>(data)->store(1);
        gpushare_sim_wake_word(static_cast<const uint32_t*>(data), 1);
      },
      &word));
  while (word == 0) {
    gpushare_sim_wait_word(reinterpret_cast<const uint32_t*>(&word), 0, Now() + 1'000'000'000, 0);
  }
  EXPECT_CU(cuStreamSynchronize(a));
}

TEST_F(WallClockTest, WordsHaveDeadlines) {
  const uint32_t word = 5;
  const uint64_t start = Now();
  EXPECT_EQ(0, gpushare_sim_wait_word(&word, 4, UINT64_MAX, 1000));
  EXPECT_EQ(1, gpushare_sim_wait_word(&word, 5, start + 3'000'000, 100'000));
  EXPECT_GE(Now() - start, 3'000'000u);
}

TEST_F(WallClockTest, AFullQueueBlocks) {
  Restart(std::string(kPlain) + ",clock=wall,queue_depth=2");
  const CUstream a = NewStream();
  const uint64_t start = Now();
  for (int i = 0; i < 5; ++i) ASSERT_CU(Spin(a, 2'000'000, 1));
  EXPECT_GE(Now() - start, 6'000'000u);
}

}  // namespace
}  // namespace gpushare::sim_test
