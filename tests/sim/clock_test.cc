// SPDX-License-Identifier: Apache-2.0
// The virtual clock: order, determinism, words, registration.
#include <atomic>
#include <memory>
#include <random>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

using ClockTest = SimTest;

TEST_F(ClockTest, SpendingMovesTimeByExactlyThatMuch) {
  const uint64_t start = Now();
  gpushare_sim_spend(1);
  gpushare_sim_spend(12345);
  gpushare_sim_spend(0);
  EXPECT_EQ(Now() - start, 12346u);
}

TEST_F(ClockTest, ThreadsRunInTheOrderOfTheirTimes) {
  std::vector<int> order;  // one thread runs at a time, so no lock is needed
  {
    std::vector<std::unique_ptr<SimThread>> threads;
    for (int i = 0; i < 8; ++i) {
      threads.push_back(std::make_unique<SimThread>("worker", [i, &order] {
        gpushare_sim_spend(static_cast<uint64_t>(1000 - 100 * i));
        order.push_back(i);
      }));
    }
  }
  EXPECT_EQ(order, (std::vector<int>{7, 6, 5, 4, 3, 2, 1, 0}));
}

TEST_F(ClockTest, ThreadsOfEqualTimeRunInTheOrderOfTheirQueueing) {
  std::vector<int> order;
  {
    std::vector<std::unique_ptr<SimThread>> threads;
    for (int i = 0; i < 8; ++i) {
      threads.push_back(std::make_unique<SimThread>("worker", [i, &order] {
        for (int round = 0; round < 3; ++round) {
          gpushare_sim_spend(500);
          order.push_back(i);
        }
      }));
    }
  }
  ASSERT_EQ(order.size(), 24u);
  for (size_t k = 0; k < order.size(); ++k) EXPECT_EQ(order[k], static_cast<int>(k % 8)) << k;
}

// Runs many threads that launch, spend time, wait for words and synchronize. Returns a log of what happened when.
std::vector<std::pair<uint64_t, int>> BusyRun(CUfunction kernel, CUcontext context) {
  std::vector<std::pair<uint64_t, int>> log;
  const uint64_t start = gpushare_sim_now();
  std::atomic<uint32_t> word{0};
  {
    std::vector<std::unique_ptr<SimThread>> threads;
    for (int i = 0; i < 12; ++i) {
      threads.push_back(std::make_unique<SimThread>("worker", [&, i] {
        std::mt19937 random(static_cast<unsigned>(i));
        EXPECT_CU(cuCtxSetCurrent(context));
        CUstream stream;
        EXPECT_CU(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -(i % 3)));
        for (int step = 0; step < 200; ++step) {
          uint64_t ns = 500 + random() % 20000;
          void* parameters[] = {&ns};
          EXPECT_CU(cuLaunchKernel(kernel, static_cast<unsigned>(1 + random() % 250), 1, 1, 32, 1,
                                   1, 0, stream, parameters, nullptr));
          switch (random() % 4) {
            case 0:
              gpushare_sim_spend(random() % 9000);
              break;
            case 1:
              EXPECT_CU(cuStreamSynchronize(stream));
              break;
            case 2:
              gpushare_sim_wait_word(reinterpret_cast<const uint32_t*>(&word), word,
                                     gpushare_sim_now() + 15000, 2000);
              break;
            case 3:
              ++word;
              gpushare_sim_wake_word(reinterpret_cast<const uint32_t*>(&word), 2);
              break;
          }
          log.emplace_back(gpushare_sim_now() - start, i);
        }
        EXPECT_CU(cuStreamSynchronize(stream));
        EXPECT_CU(cuStreamDestroy(stream));
      }));
    }
  }
  return log;
}

TEST_F(ClockTest, TheSameRunGivesTheSameTimestamps) {
  Restart("noise=0.1,seed=5");
  const auto first = BusyRun(spin_, context_);
  ASSERT_EQ(first.size(), 2400u);
  for (int repeat = 0; repeat < 3; ++repeat) {
    Restart("noise=0.1,seed=5");
    EXPECT_EQ(BusyRun(spin_, context_), first);
  }
  Restart("noise=0.1,seed=6");
  EXPECT_NE(BusyRun(spin_, context_), first);
}

TEST_F(ClockTest, WaitWordReturnsAtOnceWhenTheWordDiffers) {
  const uint32_t word = 3;
  const uint64_t start = Now();
  EXPECT_EQ(0, gpushare_sim_wait_word(&word, 4, UINT64_MAX, 0));
  EXPECT_EQ(Now(), start);
}

TEST_F(ClockTest, WaitWordEndsAtItsDeadline) {
  const uint32_t word = 3;
  const uint64_t start = Now();
  EXPECT_EQ(1, gpushare_sim_wait_word(&word, 3, start + 70'000, 0));
  EXPECT_EQ(Now() - start, 70'000u);
  EXPECT_EQ(1, gpushare_sim_wait_word(&word, 3, start, 0));  // a time in the past
  EXPECT_EQ(Now() - start, 70'000u);
}

TEST_F(ClockTest, ADeadlineIsSeenLateByWhoSleeps) {
  Restart("timer_late=50us,call_host=0");
  const uint32_t word = 3;
  uint64_t start = Now();
  EXPECT_EQ(1, gpushare_sim_wait_word(&word, 3, start + 70'000, 10'000));
  EXPECT_EQ(Now() - start, 120'000u);
  start = Now();
  EXPECT_EQ(1, gpushare_sim_wait_word(&word, 3, start + 70'000, 70'000));
  EXPECT_EQ(Now() - start, 70'000u) << "it spins";
}

TEST_F(ClockTest, WakingCostsByWhetherTheWaiterStillSpins) {
  Restart("wake_spin=500ns,wake_sleep=20us,call_host=0");
  std::atomic<uint32_t> word{0};
  const auto* const address = reinterpret_cast<const uint32_t*>(&word);
  uint64_t woken[2] = {};
  const uint64_t start = Now();
  SimThread spinner("spinner", [&] {
    EXPECT_EQ(0, gpushare_sim_wait_word(address, 0, UINT64_MAX, 200'000));
    woken[0] = Now();
  });
  SimThread sleeper("sleeper", [&] {
    EXPECT_EQ(0, gpushare_sim_wait_word(address, 0, UINT64_MAX, 1'000));
    woken[1] = Now();
  });
  gpushare_sim_spend(100'000);
  word = 1;
  gpushare_sim_wake_word(address, 2);
  spinner.Join();
  sleeper.Join();
  EXPECT_EQ(woken[0] - start, 100'500u);
  EXPECT_EQ(woken[1] - start, 120'000u);
}

TEST_F(ClockTest, WakeWordWakesSoManyInTheOrderTheyCame) {
  std::atomic<uint32_t> word{0}, other{0};
  const auto* const address = reinterpret_cast<const uint32_t*>(&word);
  std::vector<int> woken;
  std::vector<std::unique_ptr<SimThread>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(std::make_unique<SimThread>("waiter", [&, i] {
      gpushare_sim_wait_word(address, 0, UINT64_MAX, 0);
      woken.push_back(i);
    }));
  }
  gpushare_sim_spend(10);
  gpushare_sim_wake_word(reinterpret_cast<const uint32_t*>(&other), 100);
  gpushare_sim_spend(10);
  EXPECT_TRUE(woken.empty());
  gpushare_sim_wake_word(address, 3);
  gpushare_sim_spend(10);
  EXPECT_EQ(woken, (std::vector<int>{0, 1, 2}));
  gpushare_sim_wake_word(address, 3);
  gpushare_sim_spend(10);
  EXPECT_EQ(woken, (std::vector<int>{0, 1, 2, 3}));
}

TEST_F(ClockTest, AWokenThreadWithADeadlineIsNotWokenTwice) {
  std::atomic<uint32_t> word{0};
  const auto* const address = reinterpret_cast<const uint32_t*>(&word);
  int wakes = 0;
  SimThread waiter("waiter", [&] {
    EXPECT_EQ(0, gpushare_sim_wait_word(address, 0, Now() + 1000, 0));
    ++wakes;
    EXPECT_EQ(1, gpushare_sim_wait_word(address, 1, Now() + 5000, 0));
    ++wakes;
  });
  gpushare_sim_spend(500);
  word = 1;
  gpushare_sim_wake_word(address, 1);
  gpushare_sim_spend(1000);
  EXPECT_EQ(wakes, 1);
  gpushare_sim_spend(10'000);
  EXPECT_EQ(wakes, 2);
}

TEST_F(ClockTest, AnAnnouncedThreadIsWaitedFor) {
  // The clock may not pass the thread's begin, however long the machine takes to start it.
  const uint64_t born = Now();
  uint64_t first_seen = 0;
  const uint64_t number = gpushare_sim_thread_announce("late");
  std::thread late([&] {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    EXPECT_EQ(0, gpushare_sim_thread_enter_announced(number));
    first_seen = Now();
    gpushare_sim_thread_leave();
  });
  gpushare_sim_spend(1'000'000);
  EXPECT_EQ(first_seen, born);
  gpushare_sim_external_begin();
  late.join();
  gpushare_sim_external_end();
}

TEST_F(ClockTest, AnAnnouncedThreadThatCouldNotBeStartedIsNotWaitedFor) {
  const uint64_t number = gpushare_sim_thread_announce("never");
  EXPECT_EQ(0, gpushare_sim_thread_withdraw(number));
  EXPECT_EQ(-1, gpushare_sim_thread_withdraw(number));
  EXPECT_EQ(-1, gpushare_sim_thread_withdraw(0));
  // A thread outside the clock does not hold the turn, since it might depend on a thread that cannot run.
  std::thread other([] {
    for (int i = 0; i < 3; ++i) {
      const uint64_t another = gpushare_sim_thread_announce("never comes");
      EXPECT_EQ(0, gpushare_sim_thread_withdraw(another));
      EXPECT_EQ(-1, gpushare_sim_thread_withdraw(another));
    }
  });
  gpushare_sim_external_begin();
  other.join();
  gpushare_sim_external_end();
  const uint64_t start = Now();
  gpushare_sim_spend(1'000'000);  // would not advance
  EXPECT_EQ(Now() - start, 1'000'000u);
}

TEST_F(ClockTest, ExternalBlockingLetsTheOthersGoOn) {
  std::atomic<bool> done{false};
  SimThread other("other", [&] {
    gpushare_sim_spend(5'000'000);
    done = true;
  });
  const uint64_t start = Now();
  gpushare_sim_external_begin();
  while (!done) std::this_thread::yield();
  gpushare_sim_external_end();
  EXPECT_GE(Now() - start, 5'000'000u);
}

TEST_F(ClockTest, ThreadsThatAreNotRegisteredAreServedInBetween) {
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0};
  std::thread outsider([&] {
    while (!stop) {
      int count = 0;
      EXPECT_CU(cuDeviceGetCount(&count));
      EXPECT_EQ(count, 1);
      ++calls;
    }
  });
  while (calls < 200) gpushare_sim_spend(1000);
  stop = true;
  gpushare_sim_external_begin();
  outsider.join();
  gpushare_sim_external_end();
}

TEST_F(ClockTest, WithNobodyInTheDriverTimeStandsStill) {
  const CUstream stream = NewStream();
  EXPECT_CU(Spin(stream, 1'000'000, 100));
  const uint64_t start = Now();
  gpushare_sim_thread_leave();
  EXPECT_EQ(Now(), start);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_CU(cuStreamSynchronize(stream));  // registered for the duration of the call
  EXPECT_EQ(Now() - start, 1'000'000u);
  EXPECT_EQ(0, gpushare_sim_thread_enter("test"));
}

// A thread that polls every 10 us, like a limiter, and counts the polls.
class Service {
 public:
  Service()
      : thread_([this, number = gpushare_sim_thread_announce_service("service")] {
          EXPECT_EQ(0, gpushare_sim_thread_enter_announced(number));
          while (stop_ == 0) {
            ++looks_;
            gpushare_sim_wait_word(reinterpret_cast<const uint32_t*>(&stop_), 0,
                                   gpushare_sim_now() + 10'000, 0);
          }
          gpushare_sim_thread_leave();
        }) {}
  ~Service() {
    stop_ = 1;
    gpushare_sim_wake_word(reinterpret_cast<const uint32_t*>(&stop_), 1);
    gpushare_sim_external_begin();
    thread_.join();
    gpushare_sim_external_end();
  }
  int looks() const { return looks_; }

 private:
  std::atomic<uint32_t> stop_{0};
  std::atomic<int> looks_{0};
  std::thread thread_;
};

TEST_F(ClockTest, AServiceRunsWhenOthersBringTheClockThere) {
  const Service service;
  const uint64_t start = Now();
  gpushare_sim_spend(1'000'001);
  EXPECT_EQ(Now() - start, 1'000'001u);
  EXPECT_EQ(service.looks(), 101);
}

TEST_F(ClockTest, TimeDoesNotPassForTheSakeOfAService) {
  const CUstream stream = NewStream();
  {
    const Service service;
    gpushare_sim_spend(1);
    EXPECT_CU(Spin(stream, 1'000'000, 100));
    EXPECT_EQ(0, gpushare_sim_thread_leave());
    const uint64_t start = Now();
    const int looks = service.looks();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    EXPECT_EQ(Now(), start);
    EXPECT_EQ(service.looks(), looks);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_CU(cuStreamSynchronize(stream));  // waits, so that the clock and the service advance
    EXPECT_EQ(Now() - start, 1'000'000u);
    EXPECT_NEAR(service.looks() - looks, 100, 1);
    EXPECT_EQ(0, gpushare_sim_thread_enter("test"));
  }
  gpushare_sim_spend(1);
}

TEST_F(ClockTest, AThreadThatEndsWithoutLeavingLeaves) {
  for (int i = 0; i < 20; ++i) {
    gpushare_sim_external_begin();
    std::thread([&] {
      EXPECT_EQ(0, gpushare_sim_thread_enter("forgets"));
      gpushare_sim_spend(10);
    }).join();
    gpushare_sim_external_end();
  }
  gpushare_sim_spend(10);
}

TEST_F(ClockTest, RegistrationIsOncePerThread) {
  EXPECT_EQ(-1, gpushare_sim_thread_enter("again"));
  EXPECT_EQ(0, gpushare_sim_thread_leave());
  EXPECT_EQ(-1, gpushare_sim_thread_leave());
  EXPECT_EQ(-1, gpushare_sim_thread_enter_announced(0));
  EXPECT_EQ(-1, gpushare_sim_thread_enter_announced(123456));
  EXPECT_EQ(0, gpushare_sim_thread_enter("again"));
}

TEST_F(ClockTest, ResetIsRefusedWhileOthersAreRegistered) {
  std::atomic<uint32_t> word{0};
  SimThread other("other", [&] {
    gpushare_sim_wait_word(reinterpret_cast<const uint32_t*>(&word), 0, UINT64_MAX, 0);
  });
  gpushare_sim_spend(10);
  EXPECT_EQ(-1, gpushare_sim_reset());
  word = 1;
  gpushare_sim_wake_word(reinterpret_cast<const uint32_t*>(&word), 1);
}

TEST_F(ClockTest, LeavingGivesTheProcessorsBack) {
  cpu_set_t before, inside, after;
  gpushare_sim_thread_leave();
  ASSERT_EQ(0, sched_getaffinity(0, sizeof(before), &before));
  ASSERT_EQ(0, gpushare_sim_thread_enter("test"));
  ASSERT_EQ(0, sched_getaffinity(0, sizeof(inside), &inside));
  EXPECT_EQ(1, CPU_COUNT(&inside));
  gpushare_sim_thread_leave();
  ASSERT_EQ(0, sched_getaffinity(0, sizeof(after), &after));
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  ASSERT_EQ(0, gpushare_sim_thread_enter("test"));
}

TEST_F(ClockTest, ACallCostsItsCallerWhatIsDeclared) {
  Restart("launch_host=3us,call_host=300ns,query_host=100ns,record_host=1us");
  const CUstream stream = NewStream();
  const CUevent event = NewEvent();
  uint64_t start = Now();
  EXPECT_CU(Spin(stream, 1000, 1));
  EXPECT_EQ(Now() - start, 3000u);
  start = Now();
  EXPECT_CU(cuEventRecord(event, stream));
  EXPECT_EQ(Now() - start, 1000u);
  start = Now();
  cuEventQuery(event);
  EXPECT_EQ(Now() - start, 100u);
  start = Now();
  CUdeviceptr pointer;
  EXPECT_CU(cuMemAlloc(&pointer, 1000));
  EXPECT_EQ(Now() - start, 300u);
  start = Now();
  CUcontext current;
  EXPECT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(Now(), start);
}

}  // namespace
}  // namespace gpushare::sim_test
