// SPDX-License-Identifier: Apache-2.0
// The simulated GPU's virtual clock as a base::Clock.
//
//   std::unique_ptr<SimClock> clock = SimClock::Attach(handle);   // null on the wall clock
//
// A wait hands the turn to another thread of the clock and costs no real time. StartThread() announces a
// thread before it exists, so that the clock does not run ahead of its start. A thread that calls Wait()
// without being registered is registered for the duration of the call.
//
// Threading: as base::Clock. The clock outlives the threads that use it; the driver's object is never
// unloaded.
#ifndef GPUSHARE_DRIVER_SIM_CLOCK_H_
#define GPUSHARE_DRIVER_SIM_CLOCK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpushare/testing/sim.h"

namespace gpushare::driver {

class SimClock final : public base::Clock {
 public:
  // The clock of the simulated driver `handle`; null when it runs on the wall clock. Internal when the
  // driver lacks a function of testing/sim.h.
  static absl::StatusOr<std::unique_ptr<SimClock>> Attach(void* handle);

  Time Now() override;
  base::WaitResult Wait(const std::atomic<uint32_t>& word, uint32_t expected, Time deadline,
                        Nanos spin) override;
  void Wake(const std::atomic<uint32_t>& word, int count) override;
  std::unique_ptr<base::ClockThread> StartThread(std::string name,
                                                 std::function<void()> body) override;
  std::unique_ptr<base::ClockThread> StartService(std::string name,
                                                  std::function<void()> body) override;

 private:
  class Thread;
  struct Calls {
    decltype(&gpushare_sim_now) now;
    decltype(&gpushare_sim_wait_word) wait_word;
    decltype(&gpushare_sim_wake_word) wake_word;
    decltype(&gpushare_sim_thread_announce) thread_announce;
    decltype(&gpushare_sim_thread_announce_service) thread_announce_service;
    decltype(&gpushare_sim_thread_enter_announced) thread_enter_announced;
    decltype(&gpushare_sim_thread_withdraw) thread_withdraw;
    decltype(&gpushare_sim_thread_leave) thread_leave;
  };
  explicit SimClock(const Calls& calls) : calls_(calls) {}

  const Calls calls_;
};

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_SIM_CLOCK_H_
