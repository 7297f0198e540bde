// SPDX-License-Identifier: Apache-2.0
// The figures of the demonstration and their formats.
#ifndef GPUSHARE_CLI_DEMO_REPORT_H_
#define GPUSHARE_CLI_DEMO_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "cli/demo/options.h"
#include "cli/demo/plot.h"
#include "cli/demo/scenario.h"
#include "cli/demo/session.h"

namespace gpushare::cli {

// An interval between two changes of the set of tenants. Its first part, while shares settle, does not count.
struct Phase {
  std::string name;
  Nanos from{0}, to{0};  // the part that counts, since the start
};

struct TenantFigures {
  std::string name, workload, asked, spec;
  double guarantee = -1;
  std::vector<double> got;  // by phase: part of the device by the device's own books; NaN: unknown
  std::vector<double> metered;  // by phase: part of the device by the engine's meter
  std::vector<double> series;   // by step over the whole run: `got` if known, else `metered`
  uint64_t memory_limit = 0, memory_peak = 0, denied = 0;
  uint64_t launches = 0, waits = 0, passes = 0;
  Nanos throttled{0};
};

struct LatencyFigures {
  int64_t requests = 0;
  Nanos p50{0}, p99{0}, most{0};
};

struct DemoReport {
  std::string gpu;  // its name, with "simulated" added if the name does not tell
  bool simulated = false;
  DemoOptions options;
  Nanos length{0}, step{0};
  std::vector<Phase> phases;
  std::vector<TenantFigures> tenants;
  LatencyFigures alone, shared;  // of the service
  double busy = 0;               // part of the time in which a kernel was resident; NaN: unknown
  double sms_held = 0;           // `busy` weighted by the part of the SMs held
  Nanos leaves{0}, returns{0};
  std::string leaver;
};

struct ReportInput {
  std::string gpu;  // its name
  bool simulated;
  const DemoOptions& options;
  const Scenario& scenario;
  const Outcome &alone, &shared;
};
DemoReport MakeReport(const ReportInput& input);

std::string ReportText(const DemoReport& report);
std::string ReportJson(const DemoReport& report);
SharePlot ReportPlot(const DemoReport& report);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_REPORT_H_
