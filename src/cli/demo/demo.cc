// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/demo.h"

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/demo/report.h"
#include "cli/demo/scenario.h"
#include "cli/demo/session.h"
#include "cli/interrupt.h"
#include "cli/open_gpu.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "gpushare/trace.h"

namespace gpushare::cli {
namespace {

constexpr uint32_t kTracedEvents = 1u << 18;

std::string At(const char* what, double fraction, Nanos length) {
  char text[96];
  const double seconds = static_cast<double>(length.count()) / 1e9;
  std::snprintf(text, sizeof(text), "%s, %.1f of %g s", what, fraction * seconds, seconds);
  return text;
}

}  // namespace

ExitCode RunDemo(const DemoOptions& options) {
  if (options.traces.size() > kDemoTenants) {
    return Fail(
        "demo", kExitUsage,
        absl::InvalidArgumentError("--trace was given " + std::to_string(options.traces.size()) +
                                   " times: allowed are up to 4, one a tenant"));
  }
  const std::pair<const char*, std::string> outputs[] = {{"--json", options.json_path},
                                                         {"--plot", options.plot_path},
                                                         {"--trace-out", options.trace_path}};
  for (const auto& [option, path] : outputs) {
    if (path.empty()) continue;
    for (const auto& [other, same] : outputs) {
      if (option == other) break;
      if (path != same) continue;
      return Fail("demo", kExitUsage,
                  absl::InvalidArgumentError(std::string(other) + " and " + option +
                                             " would write the same file: " + path));
    }
    if (const ExitCode code = CheckWritable("demo", path); code != kExitOk) return code;
  }
  EndOnInterrupt("demo");
  absl::StatusOr<OpenedGpu> opened = OpenGpu(options.gpu, options.gpu_name);
  if (!opened.ok()) return Fail("demo", ExitCodeOf(opened.status()), opened.status());
  if (!opened->note.empty() && !options.quiet) {
    std::fprintf(stderr, "gpushare demo: on the simulated GPU, because %s\n", opened->note.c_str());
  }
  const absl::StatusOr<Scenario> scenario = MakeScenario(options, opened->probe);
  if (!scenario.ok()) return Fail("demo", kExitBadTrace, scenario.status());

  ProgressBar bar(stderr, options.quiet      ? ProgressBar::Shown::kNever
                          : options.progress ? ProgressBar::Shown::kAlways
                                             : ProgressBar::Shown::kOnTerminal);
  const auto run = [&](const char* what, double done, double part,
                       const std::vector<const TenantPlan*>& plans) {
    SessionOptions session;
    session.length = scenario->length;
    session.progress = [&, done, part](double fraction) {
      bar.Update(done + part * fraction, At(what, fraction, scenario->length));
    };
    return RunTenants(*opened, plans, session);
  };
  std::vector<const TenantPlan*> everyone;
  for (const TenantPlan& plan : scenario->tenants) everyone.push_back(&plan);

  // Plays the same requests twice: alone, then with the other tenants.
  const absl::StatusOr<Outcome> alone = run("the service alone", 0, 0.2, {everyone.front()});
  bar.Clear();
  if (!alone.ok()) return Fail("demo", kExitFailed, alone.status());
  std::optional<Trace> trace;
  if (!options.trace_path.empty()) {
    absl::StatusOr<Trace> started = Trace::Start(opened->runtime, {.capacity = kTracedEvents});
    if (!started.ok()) return Fail("demo", kExitFailed, started.status());
    trace = *std::move(started);
  }
  const absl::StatusOr<Outcome> shared = run("four tenants", 0.2, 0.8, everyone);
  bar.Clear();
  if (!shared.ok()) return Fail("demo", kExitFailed, shared.status());

  const DemoReport report =
      MakeReport({opened->probe.name, opened->simulated, options, *scenario, *alone, *shared});
  if (options.json_path != kStdout) std::fputs(ReportText(report).c_str(), stdout);
  // An output that cannot be written does not prevent the others.
  ExitCode code = FinishStdout("demo");
  if (!options.json_path.empty()) {
    const ExitCode written = WriteFile("demo", options.json_path, ReportJson(report));
    if (written != kExitOk) code = written;
  }
  if (!options.plot_path.empty()) {
    const ExitCode written = WriteFile("demo", options.plot_path, RenderSvg(ReportPlot(report)));
    if (written != kExitOk) code = written;
  }
  if (trace.has_value()) {
    if (const absl::Status written = trace->Write(options.trace_path); !written.ok()) {
      code = Fail("demo", kExitOutput, written);
    }
  }
  return code;
}

}  // namespace gpushare::cli
