// SPDX-License-Identifier: Apache-2.0
#include "base/process_barrier.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/forbidden_call.h"

namespace gpushare::base {
namespace {

// One thread stores and then reads without a fence. The other one stores, makes all threads pass the barrier, and
// reads. If the latter did not see a store of the former, then the former saw the latter's store.
TEST(ProcessBarrier, OneOfTheTwoSeesTheOther) {
  if (!HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  constexpr uint32_t kSteps = 1'000'000;
  constexpr int kRounds = 30;
  std::vector<uint32_t> saw(kSteps + 1);                   // the value of `rarely`, at each step
  std::vector<std::pair<uint32_t, uint32_t>> looks(1024);  // the stored value, and the value seen
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<uint32_t> often{0}, rarely{0};
    looks.clear();
    std::thread other([&] {
      for (uint32_t i = 1; i <= kSteps; ++i) {
        often.store(i, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        saw[i] = rarely.load(std::memory_order_relaxed);
      }
    });
    for (uint32_t j = 1; often.load(std::memory_order_relaxed) < kSteps; ++j) {
      rarely.store(j, std::memory_order_relaxed);
      ProcessBarrier();
      looks.emplace_back(j, often.load(std::memory_order_relaxed));
    }
    other.join();
    for (const auto& [stored, seen] : looks) {
      if (seen < kSteps) {
        ASSERT_GE(saw[seen + 1], stored) << seen;
      }
    }
  }
}

// A program may forbid itself the call later on. The barrier then waits instead, and no new user of it may start.
TEST(ProcessBarrier, AFilterThatComesLaterIsNoticed) {
  if (!HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  enum Found : int { kAsItShould, kNoFilter, kNotNoticed, kFailed };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!gpushare::testing::Forbid(SYS_membarrier)) _exit(kNoFilter);
    errno = 0;
    ProcessBarrier();
    _exit(errno != 0 ? kFailed : HasProcessBarrier() ? kNotNoticed : kAsItShould);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNoFilter) GTEST_SKIP() << "no filters of system calls here";
  EXPECT_EQ(WEXITSTATUS(status), kAsItShould);
}

}  // namespace
}  // namespace gpushare::base
