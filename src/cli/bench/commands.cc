// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/commands.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/bench/calibrate.h"
#include "cli/bench/card.h"
#include "cli/bench/record.h"
#include "cli/bench/report.h"
#include "cli/bench/run.h"
#include "cli/bench/scenarios.h"
#include "cli/bench/table.h"
#include "cli/gpu_option.h"
#include "cli/output.h"
#include "harness/method.h"
#include "harness/scenario.h"

namespace gpushare::cli {
namespace {

// The options that `run` and `all` share. `options` holds the defaults; `otherwise` names the default methods.
void AddRunOptions(CLI::App* run, BenchOptions* options, const char* otherwise) {
  run->add_option("--gpu", options->gpu,
                  "sim: the simulated GPU; or a real one: ordinal, UUID or PCI id")
      ->check(CLI::Validator(
          [](const std::string& text) -> std::string {
            if (text == "sim" || NamesCard(text)) return "";
            return "'" + text.substr(0, 40) +
                   "' given, sim, an ordinal, a UUID or a PCI id allowed";
          },
          ""))
      ->type_name("GPU")
      ->capture_default_str();
  run->add_option("--method", options->methods,
                  absl::StrCat("native, time-slicing, mps, gpushare, gpushare-spatial, "
                               "gpushare-preload, or NAME=LIBRARY[,VARIABLE=VALUE]...; may be "
                               "given several times; without it ",
                               otherwise))
      ->type_name("METHOD")
      ->allow_extra_args(false);
  run->add_option("--server", options->servers,
                  "what a library of --method needs beside itself, started before the programs of "
                  "each run and ended after them; may be given several times")
      ->type_name("NAME=COMMAND")
      ->allow_extra_args(false);
  run->add_option("--profile", options->profile,
                  "a device profile, as `bench calibrate` writes them: what the simulated GPU is "
                  "like where a case says nothing else")
      ->type_name("FILE");
  run->add_option("--repetitions", options->repetitions, "of each case by each method, 1 to 100")
      ->check(CLI::Range(1, 100).description(""))
      ->type_name("N")
      ->capture_default_str();
  run->add_option("--seed", options->seed,
                  "of the order, of requests and of the simulated GPU's noise")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 62).description(""))
      ->type_name("N")
      ->capture_default_str();
  run->add_option("--limit", options->limit_s, "seconds after which a run has hung, 1 to 3600")
      ->check(CLI::Range(1, 3600).description(""))
      ->type_name("SECONDS")
      ->capture_default_str();
  run->add_option(
         "--out", options->out,
         "write each result there, as JSON Lines; '-': on standard output, instead of the table")
      ->type_name("FILE")
      ->capture_default_str();
  run->add_flag("--force", options->force, "write --out anew where it is there already");
  run->add_flag("--quiet", options->quiet, "show no progress");
}

ExitCode ListScenarios(bool with_cases) {
  const absl::StatusOr<std::vector<std::string>> names = ScenarioNames();
  if (!names.ok()) return Fail("bench scenarios", kExitNoGpu, names.status());
  for (const std::string& name : *names) {
    if (!with_cases) {
      std::puts(name.c_str());
      continue;
    }
    const absl::StatusOr<std::string> file = FindScenario(name);
    const absl::StatusOr<harness::Scenario> scenario =
        file.ok() ? harness::LoadScenario(*file) : file.status();
    if (!scenario.ok()) return Fail("bench scenarios", kExitFailed, scenario.status());
    for (const harness::Case& one : scenario->cases) {
      std::puts(absl::StrCat(name, " ", one.name).c_str());
    }
  }
  return FinishStdout("bench scenarios");
}

void AddCalibrate(CLI::App* bench, std::function<ExitCode()>* chosen) {
  const auto command = std::make_shared<CalibrateCommand>();
  CLI::App* const calibrate = bench->add_subcommand(
      "calibrate",
      "Measure the GPU, and write a device profile that makes the simulated GPU like it");
  AddGpuOptions(calibrate, &command->kind, &command->device);
  calibrate
      ->add_option("--out", command->out,
                   "the profile, as YAML; '-': on standard output, in place of the table")
      ->type_name("FILE")
      ->capture_default_str();
  calibrate->add_flag("--force", command->force, "write --out anew where it is there already");
  calibrate->add_flag("--json", command->json, "the figures as JSON, in place of the table");
  calibrate
      ->add_option("--limit", command->limit_s, "seconds after which a part has hung, 1 to 3600")
      ->check(CLI::Range(1, 3600).description(""))
      ->type_name("SECONDS")
      ->capture_default_str();
  calibrate
      ->add_option("--in-all", command->in_all_s, "seconds after which no part is begun, 1 to 3600")
      ->check(CLI::Range(1, 3600).description(""))
      ->type_name("SECONDS")
      ->capture_default_str();
  calibrate->add_flag("--quiet", command->quiet, "show no progress");
  calibrate->callback([=] { *chosen = [=] { return CalibrateGpu(*command); }; });
}

}  // namespace

void AddBenchCommands(CLI::App* app, std::function<ExitCode()>* chosen) {
  CLI::App* const bench = app->add_subcommand(
      "bench", "Measure whether a way to share a GPU does what it is asked for");
  bench->require_subcommand(1);

  const auto options = std::make_shared<BenchOptions>();
  CLI::App* const run = bench->add_subcommand("run", "Run scenarios by each method in turns");
  run->add_option("scenarios", options->scenarios, "YAML files, or names of `bench scenarios`")
      ->required()
      ->type_name("FILE");
  run->add_flag("--short", options->as_short,
                "the short form that their `short:` describes, for a look");
  run->add_option("--case", options->cases, "only these cases; may be given several times")
      ->type_name("NAME");
  AddRunOptions(run, options.get(), "native and gpushare");
  run->callback([=] { *chosen = [=] { return RunBench(*options); }; });

  const auto everything = std::make_shared<BenchOptions>();
  everything->repetitions = 1;
  everything->out = "gpushare-bench.jsonl";
  everything->html = "gpushare-bench.html";
  CLI::App* const all = bench->add_subcommand(
      "all", "Run every scenario that comes with gpushare, short, by every method");
  const auto full = std::make_shared<bool>(false);
  all->add_flag("--full", *full, "the full length, not the short form");
  AddRunOptions(all, everything.get(), "every method that needs no library");
  all->add_option("--html", everything->html, "where to write the report, one page")
      ->type_name("FILE")
      ->capture_default_str();
  all->callback([=] {
    everything->as_short = !*full;
    *chosen = [=] { return RunAllBenches(*everything); };
  });

  CLI::App* const scenarios = bench->add_subcommand(
      "scenarios", "List the scenarios that come with gpushare, one per line");
  const auto with_cases = std::make_shared<bool>(false);
  scenarios->add_flag("--cases", *with_cases, "with each case, one per line");
  scenarios->callback([=] { *chosen = [=] { return ListScenarios(*with_cases); }; });

  const auto file = std::make_shared<std::string>();
  CLI::App* const show =
      bench->add_subcommand("show", "Show results as a table: medians and how sure they are");
  show->add_option("results", *file, "what `bench run --out` wrote")->required()->type_name("FILE");
  show->callback([=] { *chosen = [=] { return ShowResults(*file); }; });

  const auto two = std::make_shared<std::pair<std::string, std::string>>();
  CLI::App* const compare = bench->add_subcommand(
      "compare", "Show what is better or worse in the second results than in the first");
  compare->add_option("before", two->first, "results")->required()->type_name("FILE");
  compare->add_option("after", two->second, "results")->required()->type_name("FILE");
  compare->callback([=] { *chosen = [=] { return CompareResults(two->first, two->second); }; });

  const auto wanted = std::make_shared<ReportOptions>();
  CLI::App* const report = bench->add_subcommand(
      "report",
      "Write results as a page with plots, as Markdown or as CSV; without an option, Markdown on "
      "standard output");
  report->add_option("results", wanted->results, "what `bench run --out` wrote")
      ->required()
      ->type_name("FILE");
  report
      ->add_option("--html", wanted->html, "one page that needs nothing else; '-': standard output")
      ->type_name("FILE");
  report
      ->add_option("--markdown", wanted->markdown,
                   "the tables, and a sentence for each method and scenario")
      ->type_name("FILE");
  report->add_option("--csv", wanted->csv, "every figure of every run")->type_name("FILE");
  report->callback([=] { *chosen = [=] { return WriteReport(*wanted); }; });

  AddRecordCommand(bench, chosen);
  AddCalibrate(bench, chosen);

  CLI::App* const methods =
      bench->add_subcommand("methods", "List the names of all methods, one per line");
  methods->callback([=] {
    *chosen = [] {
      for (const std::string& name : harness::MethodNames()) std::puts(name.c_str());
      return FinishStdout("bench methods");
    };
  });
}

}  // namespace gpushare::cli
