// SPDX-License-Identifier: Apache-2.0
// Calls that fail since the host has no memory change nothing, and the same call succeeds afterwards.
#include <functional>

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
};

// ---- Threads. The virtual clock waits for every thread that was announced to it.

TEST_F(HostMemoryCallsTest, AThreadThatIsNotStartedDoesNotStopTheClock) {
  gpushare_thread thread = nullptr;
  const int failed = FailEach(
      [&] {
        return gpushare_thread_start(
            runtime_->handle(), "thread", [](void*) {}, nullptr, &thread);
      },
      [&](gpushare_status code) {
        if (code == GPUSHARE_OK) {
          EXPECT_EQ(gpushare_thread_join(thread), GPUSHARE_OK);
        }
        runtime_->SleepFor(absl::Milliseconds(1));
      });
  EXPECT_GE(failed, 4);
}

TEST_F(HostMemoryCallsTest, AWatchdogThatIsNotStartedDoesNotStopTheClock) {
  gpushare_watchdog_options options = {};
  options.struct_size = sizeof(options);
  options.callback = [](void*, const gpushare_incident*) {};
  gpushare_watchdog watchdog = nullptr;
  const int failed =
      FailEach([&] { return gpushare_watchdog_start(gpu_->handle(), &options, &watchdog); },
               [&](gpushare_status code) {
                 if (code == GPUSHARE_OK) {
                   EXPECT_EQ(gpushare_watchdog_stop(watchdog), GPUSHARE_OK);
                 }
                 runtime_->SleepFor(absl::Milliseconds(1));
               });
  EXPECT_GE(failed, 4);
}

}  // namespace
}  // namespace gpushare
