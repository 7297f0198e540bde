// SPDX-License-Identifier: Apache-2.0
// Objects that end while others use them: streams and contexts with work in flight, and signals and child processes
// beside waiting threads.
#include <signal.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/device/device_test.h"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace gpushare {
namespace {

using LifetimeTest = StreamTest;

TEST_F(LifetimeTest, AStreamGoesWithItsWorkInFlight) {
  const VirtualDevice device = MakeDevice("a", "compute=50%"), other = MakeDevice("b", "");
  const Stream beside = Must(Stream::Create(other));
  for (int round = 0; round < 20; ++round) {
    const Stream stream = Must(Stream::Create(device));
    for (int i = 0; i < 5; ++i) ASSERT_OK(Spin(stream, absl::Milliseconds(1)));
    ASSERT_OK(Spin(beside, absl::Microseconds(100)));
  }  // the stream ends, and its kernels run on
  const absl::Duration begin = runtime_->Now();
  for (int i = 0; i < 100; ++i) ASSERT_OK(Spin(beside, absl::Microseconds(100)));
  ASSERT_OK(beside.Synchronize());
  // The rest of 100 ms of kernels, and 10 ms of its own: no thread waits for markers that never come.
  EXPECT_LT(runtime_->Now() - begin, absl::Milliseconds(115));
  EXPECT_EQ(Must(device.stats()).compute.launches, 100u);
}

TEST_F(LifetimeTest, AVirtualDeviceGoesWithItsWorkInFlight) {
  const VirtualDevice other = MakeDevice("b", "");
  const Stream beside = Must(Stream::Create(other));
  for (int round = 0; round < 10; ++round) {
    const VirtualDevice device =
        MakeDevice("a", "memory=1GiB,compute=90%");  // fits: the last one is gone
    const Stream stream = Must(Stream::Create(device));
    for (int i = 0; i < 5; ++i) ASSERT_OK(Spin(stream, absl::Milliseconds(1)));
  }
  ASSERT_OK(Spin(beside, absl::Microseconds(100)));
  ASSERT_OK(beside.Synchronize());
  EXPECT_EQ(Must(Snapshot::Take(*runtime_)).devices.size(), 1u);
}

TEST_F(LifetimeTest, APrimaryContextIsResetWithWorkInFlight) {
  auto* const reset = runtime_->Symbol<int(int)>("cuDevicePrimaryCtxReset_v2");
  const Gpu second = Must(Gpu::Open(*runtime_, "1"));
  const Tenant tenant = MakeTenant("elsewhere");
  const VirtualDevice elsewhere = Must(VirtualDevice::Create(second, tenant, ""));
  {
    const VirtualDevice device = MakeDevice("a", "memory=1GiB");
    const Allocator allocator = Must(Allocator::Create(device));
    const Allocation memory = Must(allocator.Allocate(MiB(64)));
    const Stream stream = Must(Stream::Create(device));
    for (int i = 0; i < 10; ++i) ASSERT_OK(Spin(stream, absl::Milliseconds(1)));
    ASSERT_EQ(reset(0), 0);
    // Everything in the context has ended: calls say so, and none waits for ever.
    const absl::Duration begin = runtime_->Now();
    EXPECT_FALSE(Spin(stream, absl::Milliseconds(1)).ok());
    EXPECT_FALSE(stream.Synchronize().ok());
    EXPECT_FALSE(Stream::Create(device).ok() && Spin(stream, absl::Milliseconds(1)).ok());
    EXPECT_OK(Snapshot::Take(*runtime_).status());
    EXPECT_LT(runtime_->Now() - begin, absl::Seconds(1));
  }
  // The other GPU is not affected.
  const Module code = Must(Module::Load(second, kPtx));
  const Stream stream = Must(Stream::Create(elsewhere));
  EXPECT_OK(stream.Launch(Must(code.GetFunction("spin")), Whole(), uint64_t{10'000}));
  EXPECT_OK(stream.Synchronize());
}

// ---- The process around it, on the machine's clock ----

class ProcessTest : public StreamTest {
 protected:
  std::string config() const override { return "sms=100,memory=8GiB,overlap=serial,clock=wall"; }
};

TEST_F(ProcessTest, SignalsDoNotEndAWaitEarlyNorBreakALaunch) {
  static std::atomic<int> signals;
  signals = 0;
  struct sigaction action = {}, before = {};
  action.sa_handler = [](int) { ++signals; };  // without SA_RESTART: system calls return EINTR
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  const VirtualDevice device = MakeDevice("a", "cap=20%");
  const Stream stream = Must(Stream::Create(device));
  std::atomic<bool> done{false};
  const absl::Duration begin = runtime_->Now();
  std::thread launching([&] {
    for (int i = 0; i < 100; ++i) EXPECT_OK(Spin(stream, absl::Microseconds(200)));
    EXPECT_OK(stream.Synchronize());
    done = true;
  });
  const pthread_t target = launching.native_handle();
  while (!done) {
    pthread_kill(target, SIGUSR1);
    std::this_thread::yield();
  }
  launching.join();
  // 20 ms of work at a fifth of the device, minus the 5 ms that may be saved up: the signals do not end the wait
  // early.
  EXPECT_GT(runtime_->Now() - begin, absl::Milliseconds(60));
  EXPECT_GT(signals.load(), 10);
  EXPECT_EQ(Must(device.stats()).compute.launches, 100u);
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST_F(ProcessTest, ChildrenAreStartedBesideLaunches) {
  const VirtualDevice device = MakeDevice("a", "cap=50%");
  const Stream idle = Must(Stream::Create(device));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      const Stream stream = Must(Stream::Create(device));
      while (!stop) EXPECT_OK(Spin(stream, absl::Microseconds(20)));
      EXPECT_OK(stream.Synchronize());
    });
  }
  for (int i = 0; i < 20; ++i) {
    char name[] = "true";
    char* const arguments[] = {name, nullptr};
    pid_t child = -1;
    // glibc's posix_spawn() is a vfork() and an exec().
    ASSERT_EQ(posix_spawnp(&child, "true", nullptr, nullptr, arguments, environ), 0);
    int ended = -1;
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    EXPECT_EQ(ended, 0);
    // A plain fork() while the threads are at arbitrary places in the library.
    child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      _exit(gpushare_stream_synchronize(idle.handle()) == GPUSHARE_FAILED_PRECONDITION ? 0 : 1);
    }
    ASSERT_EQ(waitpid(child, &ended, 0), child);
    EXPECT_EQ(ended, 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(Must(device.stats()).compute.launches, 0u);
}

}  // namespace
}  // namespace gpushare
