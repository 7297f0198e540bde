// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace gpushare::base {
namespace {

constexpr Nanos kTimerSlack = Micros(1);

class StdThread final : public ClockThread {
 public:
  explicit StdThread(std::thread thread) : thread_(std::move(thread)) {}
  ~StdThread() override { Join(); }
  void Join() override {
    if (thread_.joinable()) thread_.join();
  }
  void Detach() override { thread_.detach(); }

 private:
  std::thread thread_;
};

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

class MachineClock final : public Clock {
 public:
  Time Now() override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return Time(Seconds(now.tv_sec) + Nanos(now.tv_nsec));
  }

  WaitResult Wait(const std::atomic<uint32_t>& word, uint32_t expected, Time deadline,
                  Nanos spin) override {
    if (spin > Nanos(0)) {
      const Time spin_end = std::min(Now() + spin, deadline);
      do {
        for (int i = 0; i < 32; ++i) {
          if (word.load(std::memory_order_acquire) != expected) {
            return WaitResult::kWoken;
          }
          CpuRelax();
        }
      } while (Now() < spin_end);
    }
    return SleepOn(word, expected, deadline, FUTEX_PRIVATE_FLAG);
  }

  void Wake(const std::atomic<uint32_t>& word, int count) override {
    WakeOn(word, count, FUTEX_PRIVATE_FLAG);
  }

  WaitResult WaitShared(const std::atomic<uint32_t>& word, uint32_t expected,
                        Time deadline) override {
    return SleepOn(word, expected, deadline, /*flags=*/0);
  }

  void WakeShared(const std::atomic<uint32_t>& word, int count) override {
    WakeOn(word, count, /*flags=*/0);
  }

  Nanos LookEvery() override { return Nanos(0); }

  std::unique_ptr<ClockThread> StartThread(std::string name, std::function<void()> body) override {
    // Signals sent to the program are for its own threads: a thread of gpushare must not consume one that a program's thread
    // waits for.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const auto restore = [&before](const void*) { pthread_sigmask(SIG_SETMASK, &before, nullptr); };
    const std::unique_ptr<const void, decltype(restore)> guard(&before, restore);
    return std::make_unique<StdThread>(
        std::thread([name = std::move(name), body = std::move(body)] {
          pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
          // By default the kernel lets a sleep last 50 us longer than asked. That is as long as a short kernel, and a
          // device whose next command is admitted that late idles.
          prctl(PR_SET_TIMERSLACK, kTimerSlack.count(), 0, 0, 0);
          body();
        }));
  }

 private:
  // With FUTEX_PRIVATE_FLAG the kernel identifies a word by its address, without it by its page.
  static WaitResult SleepOn(const std::atomic<uint32_t>& word, uint32_t expected, Time deadline,
                            int flags) {
    // FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC deadline, so EINTR does not stretch it.
    timespec until{};
    const timespec* timeout = nullptr;
    if (deadline != kNever) {
      const int64_t ns = deadline.time_since_epoch().count();
      if (ns <= 0) return WaitResult::kDeadline;
      until.tv_sec = ns / 1'000'000'000;
      until.tv_nsec = ns % 1'000'000'000;
      timeout = &until;
    }
    for (;;) {
      if (word.load(std::memory_order_acquire) != expected) {
        return WaitResult::kWoken;
      }
      const long rc =
          syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAIT_BITSET | flags,
                  expected, timeout, nullptr, FUTEX_BITSET_MATCH_ANY);
      if (rc == 0) return WaitResult::kWoken;
      if (errno == ETIMEDOUT) return WaitResult::kDeadline;
      if (errno != EINTR) return WaitResult::kWoken;  // EAGAIN: it changed.
    }
  }

  static void WakeOn(const std::atomic<uint32_t>& word, int count, int flags) {
    syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAKE | flags, count, nullptr,
            nullptr, 0);
  }
};

}  // namespace

Clock& RealClock() {
  static MachineClock* const clock = new MachineClock;
  return *clock;
}

}  // namespace gpushare::base
