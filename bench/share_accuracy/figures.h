// SPDX-License-Identifier: Apache-2.0
// What a case is, and the kinds of cases there are: each runs the engine on the simulated GPU once or a few
// times and gives rows of figures beside their bars.
#ifndef GPUSHARE_BENCH_SHARE_ACCURACY_FIGURES_H_
#define GPUSHARE_BENCH_SHARE_ACCURACY_FIGURES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/share_accuracy/testbed.h"
#include "workload/trace.h"

namespace gpushare::bench {

using Trace = std::shared_ptr<const workload::KernelTrace>;

struct Row {
  std::string figure;
  double value = 0, bar = 0;  // bar 0: none, the figure is for information
  bool at_least = false;      // the bar is a lower bound
};
struct Case {
  std::string name;
  std::function<absl::StatusOr<std::vector<Row>>(driver::Driver&)> run;
};

// What the command line says; set before a case runs.
struct Settings {
  double seconds = 6;
  uint64_t seed = 7;
  gate::EngineOptions engine;
  bool verbose = false;
  size_t windows = 0;  // with verbose: shares in each window of so many samples
};
extern Settings settings;

struct SharesBars {
  double error_1s = 1;     // pp
  double error_100ms = 4;  // pp; 0: the row has no bar
  double busy = 99;        // % of ungated
  double work = 0;         // % of ungated; 0: not printed
};
// Shares by weight; busy and work against the same tenants ungated.
Case Shares(std::string name, CaseSpec spec, SharesBars bars);

// One tenant alone under caps of 10, 30, 50 and 80 %. The bar is 0.5 pp and the tenant's longest command ÷ the
// window, 1 pp more for what is missing where the host is the limit.
Case Cap(std::string name, TenantSpec tenant, bool launch_bound);

// Requests beside a training job that gets what is left: latency, and what the job gets of the rest.
Case Online(std::string name, Trace service, Trace training, double load, bool overlap,
            Mode training_mode = Mode::kBacklog);

// Durations of the first tenant change by `first` half way, those of the others by `others`: the worst 1 s
// window through the change and from 1 s after it.
Case Mispredicted(std::string name, CaseSpec spec, double first, double others);

// Commands of `longest`, longer than the short windows: the error is their length ÷ the window.
Case LongCommands(std::string name, CaseSpec spec, double longest_s);

// The four tenants of `gpushare demo`: the meter against the truth, and what was promised.
Case Demonstration(std::string name);

}  // namespace gpushare::bench

#endif  // GPUSHARE_BENCH_SHARE_ACCURACY_FIGURES_H_
