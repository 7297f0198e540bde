// SPDX-License-Identifier: Apache-2.0
// The watchdog: threads that stall the virtual clock, and waits that never end.
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class Lines {
 public:
  Lines() {
    gpushare_sim_set_log(
        [](const char* line, void* context) { static_cast<Lines*>(context)->Add(line); }, this);
  }
  ~Lines() { gpushare_sim_set_log(nullptr, nullptr); }
  std::string Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !lines_.empty(); });
    return lines_.front();
  }

 private:
  void Add(const char* line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

class WatchdogTest : public SimTest {
 protected:
  void SetUp() override { Start(std::string(kPlain) + ",watchdog=20ms"); }
};

TEST_F(WatchdogTest, TheThreadThatHoldsTheTurnIsNamed) {
  Lines lines;
  std::atomic<bool> release{false};
  SimThread stalls("the one that stalls", [&] {
    while (!release) std::this_thread::yield();
  });
  std::thread outside([&] {
    EXPECT_NE(lines.Wait().find("'the one that stalls'"), std::string::npos);
    release = true;
  });
  gpushare_sim_spend(1000);  // the turn goes to the stalling thread
  gpushare_sim_external_begin();
  outside.join();
  gpushare_sim_external_end();
}

TEST_F(WatchdogTest, AnAnnouncedThreadThatNeverComesIsNamed) {
  Lines lines;
  const uint64_t number = gpushare_sim_thread_announce("the missing one");
  std::thread late([&] {
    EXPECT_NE(lines.Wait().find("'the missing one'"), std::string::npos);
    EXPECT_EQ(0, gpushare_sim_thread_enter_announced(number));
    gpushare_sim_thread_leave();
  });
  gpushare_sim_spend(1000);
  gpushare_sim_external_begin();
  late.join();
  gpushare_sim_external_end();
}

TEST_F(WatchdogTest, ADeadlockNamesAllWhoWaitAndForWhat) {
  Lines lines;
  char error[64];
  ASSERT_EQ(0, gpushare_sim_inject("hang kernel=k_10us", error, sizeof(error)));
  const CUstream a = NewStream();
  ASSERT_CU(cuLaunchKernel(k_10us_, 1, 1, 1, 32, 1, 1, 0, a, nullptr, nullptr));
  std::atomic<uint32_t> word{0};
  CUresult synchronised = CUDA_SUCCESS;
  SimThread one("for a kernel", [&] { synchronised = cuStreamSynchronize(a); });
  SimThread two("for a word", [&] {
    gpushare_sim_wait_word(reinterpret_cast<const uint32_t*>(&word), 0, UINT64_MAX, 0);
  });
  gpushare_sim_spend(1000);
  gpushare_sim_thread_leave();  // no thread is left that could act
  const std::string line = lines.Wait();
  EXPECT_NE(line.find("'for a kernel' (cuStreamSynchronize)"), std::string::npos) << line;
  EXPECT_NE(line.find("'for a word' (wait_word)"), std::string::npos) << line;
  ASSERT_EQ(0, gpushare_sim_thread_enter("test"));
  word = 1;
  gpushare_sim_wake_word(reinterpret_cast<const uint32_t*>(&word), 1);
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
  one.Join();
  two.Join();
  EXPECT_EQ(synchronised, CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

}  // namespace
}  // namespace gpushare::sim_test
