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
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "broker/audit.h"
#include "broker/service.h"
#include "broker/time_audit.h"

namespace gpushare::broker {

// What the driver counts of these GPUs.
using CountProcesses = std::function<absl::StatusOr<Counts>(const std::vector<std::string>& uuids)>;

// How busy processes kept GPUs, each since then.
using SampleProcesses =
    std::function<absl::StatusOr<Ran>(const std::map<std::string, uint64_t>& since)>;

// Every thread of a process, by a signal or a debugger: what it says is as old as that. `process`: its folder in /proc.
bool IsStopped(const std::string& process);

class Auditor {
 public:
  // A process publishes what it holds 160 ms after a change at the latest: a look at suspects takes longer than that.
  static constexpr int kLooks = 24;
  static constexpr Nanos kBetweenLooks = Millis(10);
  // The driver keeps a process's latest sample alone, a sixth of a second of it: no longer than that.
  static constexpr Nanos kBetweenSamples = Millis(150);

  // Without `sample` nothing is found of time.
  Auditor(Service& service, CountProcesses count, base::Clock& clock, SampleProcesses sample = {});
  ~Auditor() { End(); }
  Auditor(const Auditor&) = delete;
  Auditor& operator=(const Auditor&) = delete;

  // No audit begins any more. Waits for the one that runs.
  void End();

 private:
  void Run();
  // Whether it is to go on.
  bool Wait(Time until);
  // When to look again for time; kNever: there is nobody to look at.
  Time SampleTime();
  // False: it was interrupted, or the driver does not answer.
  bool Once(uint64_t allowance);

  Service& service_;
  const CountProcesses count_;
  base::Clock& clock_;
  const SampleProcesses sample_;
  TimeAudit time_;  // of the thread
  std::atomic<uint32_t> ended_{0};
  bool fails_ = false;  // the latest one did
  std::unique_ptr<base::ClockThread> thread_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_AUDITOR_H_
