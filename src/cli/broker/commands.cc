// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/commands.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cli/broker/ask.h"
#include "cli/broker/change.h"
#include "cli/broker/daemon.h"
#include "cli/broker/list.h"
#include "cli/broker/top.h"
#include "cli/broker/trace.h"
#include "cli/cdi/cdi.h"

namespace gpushare::cli {
namespace {

using Chosen = std::function<ExitCode()>;

void AddSocket(CLI::App* app, std::string* socket) {
  *socket = SocketOfEnvironment();
  app->add_option("--socket", *socket, "where the broker listens; GPUSHARE_BROKER says it too")
      ->type_name("PATH")
      ->capture_default_str();
}

// Like CLI::Range, but rejects NaN.
CLI::Validator Within(double least, double most) {
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) {
          return std::string();
        }
        return absl::StrCat(Quoted(text), " given; allowed: ", least, " to ", most);
      },
      "");
}

// Adds a subcommand whose options live as long as the chosen function.
template <typename Options>
CLI::App* Add(CLI::App* app, const char* name, const char* description,
              const std::shared_ptr<Options>& options, Chosen* chosen,
              ExitCode (*run)(const Options&)) {
  CLI::App* const command = app->add_subcommand(name, description);
  AddSocket(command, &options->socket);
  command->callback([=] { *chosen = [=] { return run(*options); }; });
  return command;
}

struct ListOptions {
  std::string socket;
  bool json = false;
};

void AddList(CLI::App* app, Chosen* chosen) {
  const auto list = std::make_shared<ListOptions>();
  Add<ListOptions>(app, "list", "List GPUs, tenants and processes of the broker", list, chosen,
                   [](const ListOptions& options) { return RunList(options.socket, options.json); })
      ->add_flag("--json", list->json, "as JSON");
  const auto metrics = std::make_shared<ListOptions>();
  Add<ListOptions>(
      app, "metrics", "Print the broker's metrics, in Prometheus' text format", metrics, chosen,
      [](const ListOptions& options) { return RunMetrics(options.socket, options.json); })
      ->add_flag("--json", metrics->json, "as JSON");
}

void AddTop(CLI::App* app, Chosen* chosen) {
  const auto options = std::make_shared<TopOptions>();
  CLI::App* const top = Add(app, "top", "Show what each tenant asked for and gets, until Ctrl-C",
                            options, chosen, &RunTop);
  top->add_option("--interval", options->interval, "seconds between two tables, 0.1 to 3600")
      ->check(Within(0.1, 3600))
      ->type_name("SECONDS")
      ->capture_default_str();
  top->add_flag("--once", options->once, "show one table, and end");
  top->add_flag("--json", options->json, "one line of JSON per interval");
}

void AddTrace(CLI::App* app, Chosen* chosen) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App* const trace =
      Add(app, "trace", "Record grants, waits and memory for Perfetto, until Ctrl-C", options,
          chosen, &RunTrace);
  trace->add_option("file", options->file, "the trace to write; '-': standard output")
      ->required()
      ->type_name("FILE");
  trace
      ->add_option("--seconds", options->seconds,
                   "how long to record, 0.1 to 3600; without it, until Ctrl-C")
      ->check(Within(0.1, 3600))
      ->type_name("SECONDS");
  trace->add_option("--tenant", options->tenants, "only of this tenant; may be given several times")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  trace->add_flag("--json", options->json, "what was written, as JSON");
}

CLI::App* AddChange(CLI::App* app, const char* name, const char* description, bool of_tenant,
                    const std::shared_ptr<ChangeOptions>& options, Chosen* chosen) {
  options->change.what = name;
  CLI::App* const command = Add(app, name, description, options, chosen, &RunChange);
  if (of_tenant) {
    command->add_option("tenant", options->change.tenant, "its name")
        ->required()
        ->type_name("TENANT");
  }
  command->add_flag("--json", options->json, "show what is in force as JSON");
  return command;
}

void AddChanges(CLI::App* app, Chosen* chosen) {
  const auto set = std::make_shared<ChangeOptions>();
  CLI::App* const set_command =
      AddChange(app, "set", "Change a tenant's share while it runs", true, set, chosen);
  set_command->add_option("spec", set->change.spec, "the keys to change: memory=8GiB,cap=50%")
      ->required()
      ->type_name("SPEC");
  set_command->add_option("--gpu", set->change.gpu, "only on this GPU, by its UUID")
      ->type_name("UUID");
  AddChange(app, "suspend", "Hold a tenant's work until it is resumed", true,
            std::make_shared<ChangeOptions>(), chosen);
  AddChange(app, "resume", "Let a suspended tenant go on", true, std::make_shared<ChangeOptions>(),
            chosen);
  AddChange(app, "evict", "End a tenant's sessions: its processes get no more device time", true,
            std::make_shared<ChangeOptions>(), chosen);
  AddChange(app, "reload", "Make the broker read its configuration again", false,
            std::make_shared<ChangeOptions>(), chosen);
}

void AddDrain(CLI::App* app, Chosen* chosen) {
  const auto options = std::make_shared<DrainOptions>();
  CLI::App* const drain =
      Add(app, "drain",
          "Admit no new process and no new memory, and wait until those that are there have left",
          options, chosen, &RunDrain);
  CLI::Option* const tenant =
      drain->add_option("tenant", options->tenant, "which tenant; without it, all");
  tenant->type_name("TENANT");
  drain->add_option("--gpu", options->gpu, "all tenants on this GPU, by its UUID")
      ->type_name("UUID")
      ->excludes(tenant);
  drain
      ->add_option("--timeout", options->timeout,
                   "seconds to wait, 0 to 86400; status 7 after that")
      ->check(Within(0, 86400))
      ->type_name("SECONDS")
      ->capture_default_str();
  drain->add_flag("--undo", options->undo, "take an earlier drain back");
  drain->add_flag("--json", options->json, "who is still there, as JSON");
}

void AddCdi(CLI::App* app, Chosen* chosen) {
  CLI::App* const cdi =
      app->add_subcommand("cdi", "Describe tenants as devices of container engines");
  cdi->require_subcommand(1);
  const auto options = std::make_shared<CdiOptions>();
  CLI::App* const generate = cdi->add_subcommand("generate", "Write a CDI specification, as JSON");
  generate->callback([=] { *chosen = [=] { return RunCdiGenerate(*options); }; });
  generate
      ->add_option("--socket", options->socket,
                   "where the broker listens; else what the configuration says, or GPUSHARE_BROKER")
      ->type_name("PATH");
  generate->add_option("--config", options->config, "the broker's configuration: its tenants")
      ->type_name("FILE");
  generate->add_option("--tenant", options->tenants, "one more tenant; may be given several times")
      ->type_name("NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  generate
      ->add_option("--fractions", options->fractions,
                   "how many equal parts of a GPU, as tenants that are not listed; 1 to 100")
      ->check(CLI::Range(1, 100).description(""))
      ->type_name("NUMBER");
  generate->add_option("--dev", options->dev, "where the host's devices are")
      ->type_name("PATH")
      ->capture_default_str();
  generate
      ->add_option("--output", options->output,
                   "such as /etc/cdi/gpushare.json; without it, standard output")
      ->type_name("FILE");
  generate->add_flag("--json", options->json, "what was written to it, as JSON");
}

}  // namespace

void AddBrokerCommands(CLI::App* app, Chosen* chosen) {
  AddDaemon(app, chosen);
  AddList(app, chosen);
  AddTop(app, chosen);
  AddTrace(app, chosen);
  AddChanges(app, chosen);
  AddDrain(app, chosen);
  AddCdi(app, chosen);
}

}  // namespace gpushare::cli
