// SPDX-License-Identifier: Apache-2.0
// Audits a service's processes, again and again, on a thread of its own: NVML may take long, and the broker waits for
// nobody.
//
//   Auditor auditor(*service, std::move(nvml), clock);
//   ...
//   auditor.End();          // before the service ends
#ifndef GPUSHARE_BROKER_AUDITOR_H_
#define GPUSHARE_BROKER_AUDITOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "broker/audit.h"
#include "broker/service.h"

namespace gpushare::broker {

// What the driver counts of these GPUs.
using CountProcesses = std::function<absl::StatusOr<Counts>(const std::vector<std::string>& uuids)>;

// Every thread of a process, by a signal or a debugger: what it says is as old as that. `process`: its folder in /proc.
bool IsStopped(const std::string& process);

class Auditor {
 public:
  // A process publishes what it holds 160 ms after a change at the latest: a look at suspects takes longer than that.
  static constexpr int kLooks = 24;
  static constexpr Nanos kBetweenLooks = Millis(10);

  Auditor(Service& service, CountProcesses count, base::Clock& clock);
  ~Auditor() { End(); }
  Auditor(const Auditor&) = delete;
  Auditor& operator=(const Auditor&) = delete;

  // No audit begins any more. Waits for the one that runs.
  void End();

 private:
  void Run();
  // Whether it is to go on.
  bool Wait(Time until);
  // False: it was interrupted, or the driver does not answer.
  bool Once(uint64_t allowance);

  Service& service_;
  const CountProcesses count_;
  base::Clock& clock_;
  std::atomic<uint32_t> ended_{0};
  bool fails_ = false;  // the latest one did
  std::unique_ptr<base::ClockThread> thread_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_AUDITOR_H_
