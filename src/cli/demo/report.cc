// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/match.h"
#include "absl/time/time.h"

namespace gpushare::cli {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// The part of the device used in [from, to), from device times sampled every `step`.
double ShareIn(const std::vector<double>& ns, Nanos step, Nanos from, Nanos to) {
  if (ns.empty()) return kUnknown;
  const size_t last = ns.size() - 1;
  const size_t first_sample = std::min(last, static_cast<size_t>((from + step - Nanos(1)) / step));
  const size_t last_sample = std::min(last, static_cast<size_t>(to / step));
  if (last_sample <= first_sample) return kUnknown;
  const double span =
      static_cast<double>(step.count()) * static_cast<double>(last_sample - first_sample);
  return (ns[last_sample] - ns[first_sample]) / span;
}

std::vector<double> Series(const std::vector<double>& ns, Nanos step) {
  std::vector<double> shares;
  for (size_t i = 1; i < ns.size(); ++i) {
    shares.push_back((ns[i] - ns[i - 1]) / static_cast<double>(step.count()));
  }
  return shares;
}

LatencyFigures Latencies(const player::PlayResult& play) {
  return {static_cast<int64_t>(play.requests.size()), player::LatencyQuantile(play.requests, 0.5),
          player::LatencyQuantile(play.requests, 0.99), player::LatencyQuantile(play.requests, 1)};
}

std::vector<Phase> Phases(const Scenario& scenario) {
  const std::string& leaver = scenario.tenants[scenario.leaver].name;
  const Nanos settle = std::min(Seconds(1), scenario.length / 20);
  return {{"all four", settle, scenario.leaves},
          {leaver + " away", scenario.leaves + settle, scenario.returns},
          {leaver + " back", scenario.returns + settle, scenario.length}};
}

// The limits that the policy has set.
std::string LimitsInForce(const VirtualDeviceStats& stats) {
  char text[32] = "best effort";
  if (stats.guarantee.fraction() > 0) {
    std::snprintf(text, sizeof(text), "%.0f %%", stats.guarantee.percent());
  } else if (stats.priority != Priority::kLow) {
    std::snprintf(text, sizeof(text), "weight %g", stats.weight);
  }
  return text;
}

TenantFigures Figures(const TenantPlan& plan, const TenantOutcome& outcome, const Outcome& run,
                      bool truth, const std::vector<Phase>& phases) {
  TenantFigures figures;
  figures.name = plan.name;
  figures.workload = plan.workload;
  figures.asked = plan.asked.empty() ? LimitsInForce(outcome.stats) : plan.asked;
  figures.spec = plan.spec;
  if (outcome.stats.guarantee.fraction() > 0) {
    figures.guarantee = outcome.stats.guarantee.fraction();
  }
  for (const Phase& phase : phases) {
    figures.got.push_back(truth ? ShareIn(outcome.used_ns, run.step, phase.from, phase.to)
                                : kUnknown);
    figures.metered.push_back(ShareIn(outcome.metered_ns, run.step, phase.from, phase.to));
  }
  figures.series = Series(truth ? outcome.used_ns : outcome.metered_ns, run.step);
  figures.memory_limit = outcome.stats.memory.limit.count();
  figures.memory_peak = outcome.stats.memory.peak.count();
  figures.denied = outcome.stats.memory.denied;
  figures.launches = outcome.stats.compute.launches;
  figures.waits = outcome.stats.waits;
  figures.passes = outcome.play.passes;
  figures.throttled = Nanos(absl::ToInt64Nanoseconds(outcome.stats.throttled));
  return figures;
}

}  // namespace

DemoReport MakeReport(const ReportInput& input) {
  const Scenario& scenario = input.scenario;
  const Outcome& shared = input.shared;
  DemoReport report;
  report.gpu = input.gpu;
  if (input.simulated && !absl::StrContains(input.gpu, "imulated")) report.gpu += " (simulated)";
  report.simulated = input.simulated;
  report.options = input.options;
  report.length = scenario.length;
  report.step = shared.step;
  report.phases = Phases(scenario);
  report.leaves = scenario.leaves;
  report.returns = scenario.returns;
  report.leaver = scenario.tenants[scenario.leaver].name;
  for (size_t i = 0; i < scenario.tenants.size(); ++i) {
    report.tenants.push_back(
        Figures(scenario.tenants[i], shared.tenants[i], shared, input.simulated, report.phases));
  }
  report.alone = Latencies(input.alone.tenants[0].play);
  report.shared = Latencies(shared.tenants[0].play);
  report.busy = report.sms_held = kUnknown;
  if (input.simulated && shared.busy.size() > 1) {
    const double run =
        static_cast<double>(shared.step.count()) * static_cast<double>(shared.busy.size() - 1);
    report.busy = (shared.busy.back().time_ns - shared.busy.front().time_ns) / run;
    report.sms_held = (shared.busy.back().sm_ns - shared.busy.front().sm_ns) / run;
  }
  return report;
}

SharePlot ReportPlot(const DemoReport& report) {
  SharePlot plot;
  plot.title = "Four tenants on one GPU";
  plot.subtitle = report.gpu + ", policy " + report.options.policy + ", seed " +
                  std::to_string(report.options.seed);
  plot.seconds = static_cast<double>(report.length.count()) / 1e9;
  // Windows of at least 200 ms; shorter ones would show the service's single requests.
  const size_t merged = std::max<size_t>(1, static_cast<size_t>(Millis(200) / report.step));
  plot.step_s = static_cast<double>(report.step.count()) * static_cast<double>(merged) / 1e9;
  for (const TenantFigures& tenant : report.tenants) {
    PlotLine line;
    line.name = tenant.name;
    line.asked = tenant.guarantee;
    for (size_t i = 0; i + merged <= tenant.series.size(); i += merged) {
      double sum = 0;
      for (size_t k = 0; k < merged; ++k) sum += tenant.series[i + k];
      line.shares.push_back(sum / static_cast<double>(merged));
    }
    plot.lines.push_back(std::move(line));
  }
  plot.spans.push_back({static_cast<double>(report.leaves.count()) / 1e9,
                        static_cast<double>(report.returns.count()) / 1e9,
                        report.leaver + " has stopped: its share is lent out"});
  return plot;
}

}  // namespace gpushare::cli
