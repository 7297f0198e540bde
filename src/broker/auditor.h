// SPDX-License-Identifier: Apache-2.0
// Audits a service's processes periodically, on its own thread: NVML may take long, and the broker must not wait for it.
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

// Returns what the driver counts on these GPUs.
using CountProcesses = std::function<absl::StatusOr<Counts>(const std::vector<std::string>& uuids)>;

// Returns how busy processes kept GPUs, each since the given time.
using SampleProcesses =
    std::function<absl::StatusOr<Ran>(const std::map<std::string, uint64_t>& since)>;

// Whether every thread of a process has been stopped by a signal or a debugger, so that its pages are out of date.
// `process` is its directory in /proc.
bool IsStopped(const std::string& process);

class Auditor {
 public:
  // A process publishes what it holds within 160 ms of a change. The looks at suspects together take longer than that.
  static constexpr int kLooks = 24;
  static constexpr Nanos kBetweenLooks = Millis(10);
  // The driver keeps only a process's latest sample, of a sixth of a second, so this must be shorter.
  static constexpr Nanos kBetweenSamples = Millis(150);

  // Without `sample` only memory is audited.
  Auditor(Service& service, CountProcesses count, base::Clock& clock, SampleProcesses sample = {});
  ~Auditor() { End(); }
  Auditor(const Auditor&) = delete;
  Auditor& operator=(const Auditor&) = delete;

  // Begins no more audits and waits for the current one.
  void End();

 private:
  void Run();
  // Whether to go on.
  bool Wait(Time until);
  // When to take the next samples of time; kNever: there is no process to sample.
  Time SampleTime();
  // Runs one audit. False: it was interrupted, or the driver does not answer.
  bool Once(uint64_t allowance);

  Service& service_;
  const CountProcesses count_;
  base::Clock& clock_;
  const SampleProcesses sample_;
  TimeAudit time_;  // used only by the thread
  std::atomic<uint32_t> ended_{0};
  bool fails_ = false;  // the latest audit failed
  std::unique_ptr<base::ClockThread> thread_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_AUDITOR_H_
