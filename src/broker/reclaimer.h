// SPDX-License-Identifier: Apache-2.0
// After the end of a process, asks the driver whether it has freed the process's memory. Runs on its own thread: NVML may
// take long, and the broker must not wait for it. Asks nothing while no process has ended.
//
//   Reclaimer reclaimer(*service, count, clock);
//   ...
//   reclaimer.End();        // before the service ends
#ifndef GPUSHARE_BROKER_RECLAIMER_H_
#define GPUSHARE_BROKER_RECLAIMER_H_

#include <atomic>
#include <memory>

#include "base/clock.h"
#include "broker/auditor.h"
#include "broker/service.h"

namespace gpushare::broker {

class Reclaimer {
 public:
  // The pause between two questions: at first, and at most when the driver takes long.
  static constexpr Nanos kSoon = Millis(1), kLate = Millis(50);

  Reclaimer(Service& service, CountProcesses count, base::Clock& clock);
  ~Reclaimer() { End(); }
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // Asks no more, and waits for the current question.
  void End();

 private:
  void Run();

  Service& service_;
  const CountProcesses count_;
  base::Clock& clock_;
  std::atomic<bool> ended_{false};
  std::unique_ptr<base::ClockThread> thread_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_RECLAIMER_H_
