// SPDX-License-Identifier: Apache-2.0
// Asks the driver, from the end of a process on, whether it has the memory of that back, on a thread of its own: NVML may
// take long, and the broker waits for nobody. While nobody has ended it asks nothing.
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
  // Between two questions: at first, and at last where the driver takes its time.
  static constexpr Nanos kSoon = Millis(1), kLate = Millis(50);

  Reclaimer(Service& service, CountProcesses count, base::Clock& clock);
  ~Reclaimer() { End(); }
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // Nothing is asked any more. Waits for the question that is.
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
