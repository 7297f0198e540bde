// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/run.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "cli/bench/bed.h"
#include "cli/bench/card.h"
#include "cli/bench/scenarios.h"
#include "cli/bench/summary.h"
#include "cli/bench/table.h"
#include "cli/interrupt.h"
#include "cli/open_gpu.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "harness/alone.h"
#include "harness/course.h"
#include "harness/figures.h"
#include "harness/kept.h"
#include "harness/method.h"
#include "harness/orphans.h"
#include "harness/questions/question.h"
#include "harness/report/model.h"
#include "harness/report/page.h"
#include "harness/results.h"
#include "harness/results_file.h"
#include "harness/run.h"
#include "harness/scenario.h"
#include "harness/turns.h"

namespace gpushare::cli {
namespace {

using harness::Case;
using harness::Method;
using harness::Outcome;
using harness::Result;
using harness::Scenario;
using harness::Turn;

class Measurement {
 public:
  Measurement(const harness::Bed& bed, uint64_t seed)
      : bed_(bed),
        seed_(seed),
        alone_(PlayAlone(/*sm_time=*/false)),
        alone_by_sms_(PlayAlone(/*sm_time=*/true)) {}

  // Cancelled: interrupted. Any other failure becomes a result.
  absl::StatusOr<Result> Take(const Turn& turn) {
    Result result;
    result.scenario = turn.scenario->name;
    result.one_case = turn.one->name;
    result.method = turn.method->name;
    result.repetition = turn.repetition;
    result.length = turn.scenario->length;
    result.warm_up = turn.scenario->warm_up;
    result.course = harness::CourseOf(*turn.scenario, *turn.one);
    result.not_supported = turn.why_not;
    if (!result.not_supported.empty()) return result;
    const absl::Status measured = Measure(turn, &result);
    if (absl::IsCancelled(measured)) return measured;
    if (absl::IsUnimplemented(measured)) {
      result.not_supported = std::string(measured.message());
    } else if (!measured.ok())
      result.error = std::string(measured.message());
    return result;
  }

 private:
  harness::Alone::Play PlayAlone(bool sm_time) const {
    return [this, sm_time](const Scenario& scenario, const Case& one, harness::RunOptions how) {
      how.sm_time = sm_time;
      return harness::Run(bed_, scenario, one, {"native", Method::Kind::kNative}, how);
    };
  }

  // Runs the turn and fills in the figures and the course of the result.
  absl::Status Measure(const Turn& turn, Result* result) {
    // The same requests and the same noise for every method.
    const uint64_t seed = seed_ + static_cast<uint64_t>(turn.repetition);
    const harness::Question& question = *turn.scenario->question;
    const Outcome nobody;
    const Outcome* alone = &nobody;
    if (question.with_alone || question.each_alone) {
      const bool by_sms = harness::AloneBySms(*turn.scenario, *turn.method);
      const absl::StatusOr<Outcome>& played =
          (by_sms ? alone_by_sms_ : alone_).Of(*turn.scenario, *turn.one, seed);
      if (!played.ok()) return played.status();
      alone = &*played;
    }
    const bool is_ungated = question.with_ungated && turn.method->kind == Method::Kind::kNative;
    Outcome outcome;
    if (!is_ungated) {
      GPUSHARE_ASSIGN_OR_RETURN(
          outcome, harness::Run(bed_, *turn.scenario, *turn.one, *turn.method, {.seed = seed}));
    }
    const Outcome* ungated = &nobody;
    if (question.with_ungated) {
      const absl::StatusOr<Outcome>& played = PlayUngated(turn, seed);
      if (absl::IsCancelled(played.status())) return played.status();
      // If the baseline run failed, the turn is still reported, without figures that need the baseline.
      if (is_ungated && !played.ok()) return played.status();
      if (played.ok()) ungated = &*played;
    }
    return Tell(turn, is_ungated ? *ungated : outcome, *alone, *ungated, result);
  }

  const absl::StatusOr<Outcome>& PlayUngated(const Turn& turn, uint64_t seed) {
    return ungated_.Of(*turn.one, seed, [&] {
      return harness::Run(bed_, *turn.scenario, *turn.one, {"native", Method::Kind::kNative},
                          {.seed = seed});
    });
  }

  static absl::Status Tell(const Turn& turn, const Outcome& outcome, const Outcome& alone,
                           const Outcome& ungated, Result* result) {
    result->sm_mhz = outcome.sm_mhz;
    result->figures = harness::FiguresOf(*turn.scenario, *turn.one, outcome, alone, ungated);
    if (result->figures.empty()) return absl::InternalError("it ended before its warm-up had");
    result->course = harness::CourseOf(*turn.scenario, *turn.one, outcome, alone);
    return absl::OkStatus();
  }

  const harness::Bed& bed_;
  const uint64_t seed_;
  harness::Alone alone_, alone_by_sms_;
  harness::Kept ungated_;
};

absl::StatusOr<harness::ResultsFile> OpenResults(const std::string& path) {
  if (path.empty()) return harness::ResultsFile();
  if (path == kStdout) return harness::ResultsFile::OfStdout();
  return harness::ResultsFile::Open(path);
}

// Says how the results were made, since the sentences have no intervals.
std::string HowItWasMade(const BenchOptions& options, const harness::Results& results,
                         size_t turns) {
  const size_t runs = results.runs.size();
  std::string text =
      absl::StrCat("GPU: ", Printable(results.circumstances.gpu, 200), "; each case ",
                   options.repetitions == 1 ? "once" : absl::StrCat(options.repetitions, " times"),
                   options.as_short ? ", short: for a look" : "");
  if (runs < turns) absl::StrAppend(&text, "; ", runs, " of ", turns, " runs, then it ended");
  if (options.as_short || options.repetitions < 6) {
    absl::StrAppend(&text,
                    ". Figures to quote, with intervals: gpushare bench run SCENARIO "
                    "--repetitions 6");
  }
  return text;
}

// The error for results that could not all be written: says how many were.
absl::Status Incomplete(const absl::Status& why, size_t written) {
  return absl::UnavailableError(absl::StrCat(why.message(), "; it ended there, and ", written,
                                             written == 1 ? " run is" : " runs are",
                                             " in the results"));
}

std::string PageOfResults(const std::string& file, const harness::Results& results) {
  const std::vector<harness::report::Given> given = {{file, results}};
  return harness::report::PageOf(harness::report::ReportOf(given));
}

// Checks that writing to `path` loses no earlier results.
absl::Status CheckNew(const std::string& path, bool force) {
  struct stat there;
  if (path.empty() || force || stat(path.c_str(), &there) != 0) return absl::OkStatus();
  if (!S_ISREG(there.st_mode) || there.st_size == 0) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(Quoted(path), " is there already; --force writes it anew"));
}

// Keeps the cases with these names in all scenarios; without names, all cases.
absl::Status KeepCases(const std::vector<std::string>& names, std::vector<Scenario>* scenarios) {
  if (names.empty()) return absl::OkStatus();
  std::vector<std::string> all;
  for (const Scenario& scenario : *scenarios) {
    for (const Case& one : scenario.cases) all.push_back(one.name);
  }
  for (const std::string& name : names) {
    if (absl::c_linear_search(all, name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--case ", Quoted(name), ": there is none; cases: ", absl::StrJoin(all, ", ")));
  }
  for (Scenario& scenario : *scenarios) {
    std::erase_if(scenario.cases,
                  [&](const Case& one) { return !absl::c_linear_search(names, one.name); });
  }
  std::erase_if(*scenarios, [](const Scenario& scenario) { return scenario.cases.empty(); });
  return absl::OkStatus();
}

// Makes the profile the default for cases that set no profile of their own. An empty path changes nothing.
absl::Status UseProfile(const std::string& path, const harness::Bed& bed,
                        std::vector<Scenario>* scenarios) {
  if (path.empty()) return absl::OkStatus();
  if (absl::StrContains(path, ',') || absl::StrContains(path, '\n')) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--profile ", Quoted(path), ": the path of a device profile has no comma, which ends it"));
  }
  const std::string setting = absl::StrCat("profile=", path);
  if (const absl::Status good = bed.gpu.Check(setting); !good.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--profile ", good.message()));
  }
  for (Scenario& scenario : *scenarios) {
    for (Case& one : scenario.cases) one.gpu = absl::StrCat(setting, ",", one.gpu);
  }
  return absl::OkStatus();
}

}  // namespace

ExitCode RunAllBenches(BenchOptions options) {
  const absl::StatusOr<std::vector<std::string>> names = ScenarioNames();
  if (!names.ok()) return Fail("bench", ExitCodeOf(names.status()), names.status());
  options.scenarios = *names;
  options.sentences = true;
  if (options.methods.empty()) options.methods = harness::MethodNames();
  return RunBench(options);
}

ExitCode RunBench(const BenchOptions& options) {
  absl::StatusOr<FoundCard> card = FoundCard();
  const bool on_card = options.gpu != "sim";
  if (on_card && !options.profile.empty()) {
    return Fail("bench", kExitUsage,
                absl::InvalidArgumentError(absl::StrCat("--profile is of the simulated GPU, --gpu ",
                                                        options.gpu, " is none")));
  }
  if (on_card) card = FindCard(options.gpu);
  if (!card.ok()) return Fail("bench", ExitCodeOf(card.status()), card.status());
  absl::StatusOr<harness::Bed> bed = on_card ? FindBed(*card) : FindBed();
  if (!bed.ok()) return Fail("bench", ExitCodeOf(bed.status()), bed.status());
  std::vector<std::string> files;
  for (const std::string& each : options.scenarios) {
    absl::StatusOr<std::string> file = FindScenario(each);
    if (!file.ok()) return Fail("bench", kExitUsage, file.status());
    files.push_back(*std::move(file));
  }
  absl::StatusOr<std::vector<Scenario>> scenarios = harness::LoadScenarios(
      files, [&](const std::string& settings) { return bed->gpu.Check(settings); },
      options.as_short ? harness::Length::kShort : harness::Length::kFull);
  if (!scenarios.ok()) return Fail("bench", kExitUsage, scenarios.status());
  if (const absl::Status kept = KeepCases(options.cases, &*scenarios); !kept.ok()) {
    return Fail("bench", kExitUsage, kept);
  }
  if (const absl::Status used = UseProfile(options.profile, *bed, &*scenarios); !used.ok()) {
    return Fail("bench", kExitUsage, used);
  }
  std::vector<std::string> names = options.methods;
  if (names.empty()) names = {"native", "gpushare"};
  absl::StatusOr<std::vector<Method>> methods = harness::FindMethods(names);
  if (!methods.ok()) return Fail("bench", kExitUsage, methods.status());
  for (const std::string& each : options.servers) {
    if (const absl::Status set = harness::SetServer(each, &*methods); !set.ok()) {
      return Fail("bench", kExitUsage, set);
    }
  }
  bed->limit = Seconds(options.limit_s);
  if (!options.out.empty()) {
    if (const ExitCode code = CheckWritable("bench", options.out); code != kExitOk) return code;
  }
  for (const std::string& path : {options.out, options.html}) {
    if (const absl::Status is_new = CheckNew(path, options.force); !is_new.ok()) {
      return Fail("bench", kExitOutput, is_new);
    }
  }
  if (!options.html.empty()) {
    if (const ExitCode code = CheckWritable("bench", options.html); code != kExitOk) return code;
  }
  absl::StatusOr<harness::ResultsFile> file = OpenResults(options.out);
  if (!file.ok()) return Fail("bench", kExitOutput, file.status());
  harness::Results results;
  results.circumstances = DescribeCircumstances();
  results.circumstances.seed = options.seed;
  if (!options.profile.empty()) {
    results.circumstances.profile = options.profile.substr(options.profile.rfind('/') + 1);
    absl::StrAppend(&results.circumstances.gpu, " as ", results.circumstances.profile);
  }
  if (on_card) {
    results.circumstances.gpu = card->name;
    results.circumstances.driver = card->driver;
    results.circumstances.clocks = card->clocks;
  }
  // Fails before measuring if results cannot be written.
  if (const absl::Status put = file->Put(FormatCircumstances(results.circumstances)); !put.ok()) {
    return Fail("bench", kExitOutput, Incomplete(put, 0));
  }

  const absl::Time begun = absl::Now();
  const std::atomic<int>& interrupted = TellInterrupts();
  bed->interrupted = &interrupted;
  harness::AdoptOrphans();
  ProgressBar bar(stderr,
                  options.quiet ? ProgressBar::Shown::kNever : ProgressBar::Shown::kOnTerminal);
  const std::vector<Turn> turns =
      harness::TurnsOf(*scenarios, *methods,
                       {.repetitions = options.repetitions,
                        .seed = options.seed,
                        .ground = on_card ? harness::Ground::kGpu : harness::Ground::kSimulated});
  Measurement measurement(*bed, options.seed);
  double all = 0;
  for (const Turn& turn : turns) all += turn.weight;
  PartsBar parts(bar, all, [begun] { return absl::ToDoubleSeconds(absl::Now() - begun); });
  bool failed = false;
  absl::Status written = absl::OkStatus();
  for (size_t i = 0; i < turns.size() && interrupted == 0 && written.ok(); ++i) {
    const Turn& turn = turns[i];
    parts.Begin(turn.weight,
                absl::StrCat(turn.scenario->name, " ", turn.one->name, ", ", turn.method->name));
    absl::StatusOr<Result> result = measurement.Take(turn);
    if (!result.ok()) break;
    parts.End(/*ran=*/result->not_supported.empty());
    failed = failed || !result->error.empty();
    written = file->Put(FormatResult(*result));
    results.runs.push_back(*std::move(result));
  }
  bar.Clear();
  // The page comes first: it is there though nobody reads the text.
  ExitCode code = kExitOk;
  if (!options.html.empty() && written.ok()) {
    code = WriteFile("bench", options.html, PageOfResults(options.out, results));
  }
  if (options.out != kStdout) {
    const std::string text = options.sentences ? SummaryText(results) : ResultsText(results);
    Print(text);
  }
  if (options.sentences) {
    std::printf("\n%s\n", HowItWasMade(options, results, turns.size()).c_str());
    std::printf("Results: %s%s%s; %.0f s\n", options.out.c_str(),
                options.html.empty() ? "" : ", report: ", options.html.c_str(),
                absl::ToDoubleSeconds(absl::Now() - begun));
  }
  if (const ExitCode shown = FinishStdout("bench"); code == kExitOk) code = shown;
  if (interrupted != 0) EndBySignal("bench", interrupted);
  if (!written.ok()) {
    return Fail("bench", kExitOutput, Incomplete(written, results.runs.size() - 1));
  }
  if (code != kExitOk) return code;
  return failed ? kExitFailed : kExitOk;
}

}  // namespace gpushare::cli
