// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/demo.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/demo/report.h"
#include "cli/demo/scenario.h"
#include "cli/demo/session.h"
#include "cli/open_gpu.h"
#include "cli/progress_bar.h"

namespace gpushare::cli {
namespace {

ExitCode Fail(ExitCode code, const absl::Status& status) {
  std::fprintf(stderr, "gpushare demo: %s\n", std::string(status.message()).c_str());
  return code;
}

ExitCode WriteFile(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) written = false;
  if (written) return kExitOk;
  std::fprintf(stderr, "gpushare demo: cannot write %s: %s\n", path.c_str(), std::strerror(errno));
  return kExitOutput;
}

std::string At(const char* what, double fraction, Nanos length) {
  char text[96];
  const double seconds = static_cast<double>(length.count()) / 1e9;
  std::snprintf(text, sizeof(text), "%s, %.1f of %g s", what, fraction * seconds, seconds);
  return text;
}

}  // namespace

ExitCode RunDemo(const DemoOptions& options) {
  if (options.traces.size() > kDemoTenants) {
    return Fail(kExitUsage, absl::InvalidArgumentError(
                                "--trace was given " + std::to_string(options.traces.size()) +
                                " times: allowed are up to 4, one a tenant"));
  }
  absl::StatusOr<OpenedGpu> opened = OpenGpu(options.gpu, options.gpu_name);
  if (!opened.ok()) return Fail(kExitNoGpu, opened.status());
  if (!opened->note.empty() && !options.quiet) {
    std::fprintf(stderr, "gpushare demo: on the simulated GPU, because: %s\n",
                 opened->note.c_str());
  }
  const absl::StatusOr<Scenario> scenario = MakeScenario(options, opened->probe);
  if (!scenario.ok()) return Fail(kExitBadTrace, scenario.status());

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

  // The same requests twice: without the others, then with them.
  const absl::StatusOr<Outcome> alone = run("the service alone", 0, 0.2, {everyone.front()});
  bar.Clear();
  if (!alone.ok()) return Fail(kExitFailed, alone.status());
  const absl::StatusOr<Outcome> shared = run("four tenants", 0.2, 0.8, everyone);
  bar.Clear();
  if (!shared.ok()) return Fail(kExitFailed, shared.status());

  const DemoReport report =
      MakeReport({opened->probe.name, opened->simulated, options, *scenario, *alone, *shared});
  std::fputs(ReportText(report).c_str(), stdout);
  ExitCode code = std::fflush(stdout) == 0 ? kExitOk : kExitOutput;
  if (!options.json_path.empty() && code == kExitOk) {
    code = WriteFile(options.json_path, ReportJson(report));
  }
  if (!options.plot_path.empty() && code == kExitOk) {
    code = WriteFile(options.plot_path, RenderSvg(ReportPlot(report)));
  }
  return code;
}

}  // namespace gpushare::cli
