// SPDX-License-Identifier: Apache-2.0
// The gpushare command. docs/cli.md lists what it does and how it exits.
#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "base/text.h"
#include "cli/bench/commands.h"
#include "cli/broker/commands.h"
#include "cli/completion.h"
#include "cli/demo/demo.h"
#include "cli/demo/options.h"
#include "cli/doctor.h"
#include "cli/gpu_option.h"
#include "cli/nearest.h"
#include "cli/output.h"
#include "cli/probe.h"
#include "cli/run/run.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/spec.h"

namespace gpushare::cli {
namespace {

void PrintPolicies() {
  for (const std::string& name : PolicyNames()) std::puts(name.c_str());
}

std::string PoliciesJson() {
  base::JsonWriter out;
  out.BeginArray();
  for (const std::string& name : PolicyNames())
    out.BeginObject().Key("name").String(name).EndObject();
  return out.EndArray().text() + "\n";
}

std::vector<std::string> NamesOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
  return names;
}

// Reports a word that stands in the place of a command or subcommand and is none. False if that is not the error.
bool TellUnknownCommand(const CLI::App& app, int argc, char** argv) {
  const CLI::App* at = &app;
  std::string said = "gpushare";
  for (int i = 1; i < argc && argv[i][0] != '-' && argv[i][0] != '\0'; ++i) {
    const std::string word = argv[i];
    const std::vector<std::string> names = NamesOf(*at);
    if (names.empty()) return false;
    if (std::ranges::find(names, word) != names.end()) {
      at = at->get_subcommand_ptr(word).get();
      said += " " + word;
      continue;
    }
    std::fprintf(stderr, "%s: no command is called '%s'\nRun with --help for all of them.\n",
                 said.c_str(), Printable(word, 64).c_str());
    const std::string near = NearestOf(word, names);
    if (!near.empty()) std::fprintf(stderr, "Is '%s' meant?\n", near.c_str());
    return true;
  }
  return false;
}

// The option of `command` that is like the first one that nobody knows; "" if there is none.
std::string MeantOption(const CLI::App& whole, const CLI::App& command) {
  for (const std::string& word : whole.remaining(true)) {
    if (word.substr(0, 2) != "--") continue;
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options({})) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string near = NearestOf(word.substr(0, word.find('=')), names);
    return near.empty() ? "" : "Is '" + near + "' meant?\n";
  }
  return "";
}

}  // namespace

ExitCode RunCommand(int argc, char** argv) {
  CLI::App app("gpushare: share one GPU among many tenants, with limits that hold", "gpushare");
  app.require_subcommand(0, 1);  // a missing one is reported below, after other errors
  // In the form of the commands' own messages: "gpushare run: ...".
  app.failure_message([](const CLI::App* whole, const CLI::Error& error) {
    std::string name = "gpushare";
    const CLI::App* at = whole;
    while (!at->get_subcommands().empty()) {
      at = at->get_subcommands().front();
      name += " " + at->get_name();
    }
    return name + ": " + CLI::FailureMessage::simple(whole, error) + MeantOption(*whole, *at);
  });
  app.set_version_flag("--version", std::string("gpushare ") + gpushare_version());

  DemoOptions demo_options;
  CLI::App* const demo =
      app.add_subcommand("demo", "Run four tenants on one GPU: a table and a plot");
  AddDemoOptions(demo, &demo_options);

  GpuKind kind = GpuKind::kAuto;
  std::string device = "0";
  bool json = false;
  CLI::App* const probe =
      app.add_subcommand("probe", "Show which GPU there is, and which limits apply to it");
  AddGpuOptions(probe, &kind, &device);
  probe->add_flag("--json", json, "as JSON");

  GpuKind doctor_kind = GpuKind::kAuto;
  std::string every;
  CLI::App* const doctor = app.add_subcommand(
      "doctor",
      "Check what a program would run with here: driver, limits, and which variable set them");
  AddGpuOptions(doctor, &doctor_kind, &every);
  doctor->remove_option(doctor->get_option("--device"));
  doctor->add_flag("--json", json, "as JSON");

  RunOptions run_options;
  CLI::App* const run =
      app.add_subcommand("run", "Run an unmodified program within a share of the GPU");
  AddRunOptions(run, &run_options);

  std::function<ExitCode()> chosen;
  AddBrokerCommands(&app, &chosen);
  AddBenchCommands(&app, &chosen);

  CLI::App* const policies =
      app.add_subcommand("policies", "List the names of all policies, one per line");
  policies->add_flag("--json", json, "as JSON");
  CLI::App* const version = app.add_subcommand("version", "Print the version of the library");
  version->add_flag("--json", json, "as JSON");
  AddCompletion(&app, &chosen);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for_help = error.get_exit_code() == 0;
    std::ostringstream help;
    if (asked_for_help || !TellUnknownCommand(app, argc, argv)) app.exit(error, help);
    Print(help.str());
    return asked_for_help ? FinishStdout("--help") : kExitUsage;
  }
  if (chosen) return chosen();
  if (demo->parsed()) return RunDemo(demo_options);
  if (probe->parsed()) return RunProbe(kind, device, json);
  if (doctor->parsed()) return RunDoctor(doctor_kind, json);
  if (run->parsed()) return Run(run_options);
  if (policies->parsed()) {
    json ? void(std::fputs(PoliciesJson().c_str(), stdout)) : PrintPolicies();
    return FinishStdout("policies");
  }
  if (version->parsed()) {
    std::printf(json ? "{\"version\": \"%s\"}\n" : "gpushare %s\n", gpushare_version());
    return FinishStdout("version");
  }
  std::fputs(
      "A command is required: demo, probe, doctor, run, broker, list, top, ...\n"
      "Run with --help for all of them.\n",
      stderr);
  return kExitUsage;
}

}  // namespace gpushare::cli
