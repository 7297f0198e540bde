// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/run.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/bench/bed.h"
#include "cli/bench/table.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "harness/course.h"
#include "harness/figures.h"
#include "harness/method.h"
#include "harness/results.h"
#include "harness/run.h"
#include "harness/scenario.h"

namespace gpushare::cli {
namespace {

using harness::Case;
using harness::Method;
using harness::Outcome;
using harness::Result;
using harness::Scenario;

// One case by one method, once.
struct Turn {
  const Scenario* scenario;
  const Case* one;
  const Method* method;
  int repetition;
};

// All methods in one case beside one another, in an order that changes from one repetition to the next: what drifts
// with the machine meets all of them.
std::vector<Turn> Turns(const std::vector<Scenario>& scenarios, const std::vector<Method>& methods,
                        int repetitions, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Turn> turns;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (const Scenario& scenario : scenarios) {
      for (const Case& one : scenario.cases) {
        std::vector<const Method*> order;
        for (const Method& method : methods) order.push_back(&method);
        for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
        for (const Method* method : order) turns.push_back({&scenario, &one, method, repetition});
      }
    }
  }
  return turns;
}

// The figures and the course of the result.
absl::Status Measure(const harness::Bed& bed, const Turn& turn, uint64_t seed, Result* result) {
  // The same requests and the same noise for every method.
  const harness::RunOptions options = {.seed = seed + static_cast<uint64_t>(turn.repetition)};
  Outcome alone;
  if (turn.scenario->question == harness::Question::kLatency) {
    const Method native = {"native", Method::Kind::kNative};
    GPUSHARE_ASSIGN_OR_RETURN(alone, harness::Run(bed, *turn.scenario, *turn.one, native,
                                                  {.seed = options.seed, .requests_alone = true}));
  }
  GPUSHARE_ASSIGN_OR_RETURN(const Outcome outcome,
                            harness::Run(bed, *turn.scenario, *turn.one, *turn.method, options));
  result->figures = harness::FiguresOf(*turn.scenario, *turn.one, outcome, alone);
  result->course = harness::CourseOf(*turn.scenario, *turn.one, outcome, alone);
  return absl::OkStatus();
}

Result Take(const harness::Bed& bed, const Turn& turn, uint64_t seed) {
  Result result;
  result.scenario = turn.scenario->name;
  result.one_case = turn.one->name;
  result.method = turn.method->name;
  result.repetition = turn.repetition;
  result.course = harness::CourseOf(*turn.scenario, *turn.one);
  result.not_supported = harness::WhyNot(*turn.method, *turn.one);
  if (!result.not_supported.empty()) return result;
  if (const absl::Status status = Measure(bed, turn, seed, &result); !status.ok()) {
    result.error = std::string(status.message());
  }
  return result;
}

// Where results go, line by line.
class Sink {
 public:
  explicit Sink(const std::string& path)
      : path_(path),
        file_(path.empty()      ? nullptr
              : path == kStdout ? stdout
                                : std::fopen(path.c_str(), "wb")) {}
  ~Sink() {
    if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  bool Put(const std::string& line) {
    if (path_.empty()) return true;
    return file_ != nullptr && std::fputs(line.c_str(), file_) >= 0 && std::fflush(file_) == 0;
  }

 private:
  const std::string path_;
  std::FILE* const file_;
};

}  // namespace

ExitCode RunBench(const BenchOptions& options) {
  std::vector<Scenario> scenarios;
  for (const std::string& file : options.scenarios) {
    absl::StatusOr<Scenario> scenario = harness::LoadScenario(file);
    if (!scenario.ok()) return Fail("bench", kExitUsage, scenario.status());
    scenarios.push_back(*std::move(scenario));
  }
  std::vector<std::string> names = options.methods;
  if (names.empty()) names = {"native", "gpushare"};
  std::vector<Method> methods;
  for (const std::string& name : names) {
    absl::StatusOr<Method> method = harness::FindMethod(name);
    if (!method.ok()) return Fail("bench", kExitUsage, method.status());
    methods.push_back(*std::move(method));
  }
  absl::StatusOr<harness::Bed> bed = FindBed();
  if (!bed.ok()) return Fail("bench", kExitNoGpu, bed.status());
  bed->limit = Seconds(options.limit_s);
  if (!options.out.empty()) {
    if (const ExitCode code = CheckWritable("bench", options.out); code != kExitOk) return code;
  }
  Sink sink(options.out);
  harness::Results results;
  results.circumstances = DescribeCircumstances();
  results.circumstances.seed = options.seed;
  bool written = sink.Put(FormatCircumstances(results.circumstances));

  EndOnInterrupt("bench");
  ProgressBar bar(stderr,
                  options.quiet ? ProgressBar::Shown::kNever : ProgressBar::Shown::kOnTerminal);
  const std::vector<Turn> turns = Turns(scenarios, methods, options.repetitions, options.seed);
  bool failed = false;
  for (size_t i = 0; i < turns.size(); ++i) {
    const Turn& turn = turns[i];
    bar.Update(static_cast<double>(i) / static_cast<double>(turns.size()),
               absl::StrCat(turn.scenario->name, " ", turn.one->name, ", ", turn.method->name));
    results.runs.push_back(Take(*bed, turn, options.seed));
    failed = failed || !results.runs.back().error.empty();
    written = sink.Put(FormatResult(results.runs.back())) && written;
  }
  bar.Clear();
  if (options.out != kStdout) std::fputs(ResultsText(results).c_str(), stdout);
  const ExitCode code = FinishStdout("bench");
  if (!written) {
    return Fail(
        "bench", kExitOutput,
        absl::UnavailableError(absl::StrCat(options.out, ": not all results could be written")));
  }
  if (code != kExitOk) return code;
  return failed ? kExitFailed : kExitOk;
}

}  // namespace gpushare::cli
