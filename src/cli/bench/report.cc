// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/report.h"

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cli/bench/read_results.h"
#include "cli/output.h"
#include "harness/report/csv.h"
#include "harness/report/markdown.h"
#include "harness/report/model.h"
#include "harness/report/page.h"

namespace gpushare::cli {
namespace {

namespace report = harness::report;

constexpr char kReportName[] = "bench report";

struct Output {
  const std::string* path;
  std::string (*write)(const report::Report&);
};

}  // namespace

ExitCode WriteReport(const ReportOptions& options) {
  std::vector<report::Given> given;
  for (const std::string& file : options.results) {
    absl::StatusOr<harness::Results> results = ReadResults(file);
    if (!results.ok()) return Fail(kReportName, kExitUsage, results.status());
    given.push_back({file, *std::move(results)});
  }
  std::vector<Output> outputs;
  for (const Output& each :
       {Output{&options.html, &report::PageOf}, Output{&options.markdown, &report::MarkdownOf},
        Output{&options.csv, &report::CsvOf}}) {
    if (!each.path->empty()) outputs.push_back(each);
  }
  const std::string standard_output = kStdout;
  if (outputs.empty()) outputs.push_back({&standard_output, &report::MarkdownOf});
  for (const Output& each : outputs) {
    if (*each.path == kStdout) continue;
    for (const std::string& file : options.results) {
      std::error_code unknown;
      if (!std::filesystem::equivalent(file, *each.path, unknown)) continue;
      return Fail(
          kReportName, kExitUsage,
          absl::InvalidArgumentError(absl::StrCat(
              Quoted(*each.path), " has the results themselves; a report has another name")));
    }
    if (const ExitCode code = CheckWritable(kReportName, *each.path); code != kExitOk) return code;
  }
  const report::Report made = report::ReportOf(given);
  for (const Output& each : outputs) {
    const std::string text = each.write(made);
    if (*each.path == kStdout) {
      Print(text);
      continue;
    }
    if (const ExitCode code = WriteFile(kReportName, *each.path, text); code != kExitOk) {
      return code;
    }
  }
  return FinishStdout(kReportName);
}

}  // namespace gpushare::cli
