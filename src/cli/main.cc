// SPDX-License-Identifier: Apache-2.0
// The gpushare command. docs/cli.md lists what it does and how it exits.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>

#include "cli/demo/demo.h"
#include "cli/demo/options.h"
#include "cli/exit_code.h"
#include "cli/probe.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/spec.h"

int main(int argc, char** argv) {
  using namespace gpushare::cli;  // NOLINT(google-build-using-namespace)
  CLI::App app("gpushare: share one GPU among many tenants, with limits that hold", "gpushare");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("gpushare ") + gpushare_version());

  DemoOptions demo_options;
  CLI::App* const demo =
      app.add_subcommand("demo", "four tenants share one GPU: a table and a plot");
  AddDemoOptions(demo, &demo_options);

  GpuKind kind = GpuKind::kAuto;
  std::string device = "0";
  CLI::App* const probe =
      app.add_subcommand("probe", "which GPU there is, and what limits apply to it");
  const std::map<std::string, GpuKind> kinds = {
      {"auto", GpuKind::kAuto}, {"real", GpuKind::kReal}, {"sim", GpuKind::kSimulated}};
  probe->add_option("--gpu", kind, "real, sim, or auto: real if there is one")
      ->transform(CLI::CheckedTransformer(kinds).description("real|sim|auto"));
  probe->add_option("--device", device, "which GPU: ordinal, UUID or PCI id")
      ->capture_default_str();

  CLI::App* const policies =
      app.add_subcommand("policies", "the names of all policies, one a line");
  CLI::App* const version = app.add_subcommand("version", "the version of the library");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for_help = error.get_exit_code() == 0;
    app.exit(error);
    return asked_for_help ? kExitOk : kExitUsage;
  }
  if (demo->parsed()) return RunDemo(demo_options);
  if (probe->parsed()) return RunProbe(kind, device);
  if (policies->parsed()) {
    for (const std::string& name : gpushare::PolicyNames()) std::puts(name.c_str());
  }
  if (version->parsed()) std::printf("gpushare %s\n", gpushare_version());
  return kExitOk;
}
