// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "cli/broker/daemon.h"

namespace gpushare::cli {
namespace {

// CLI::CheckedTransformer would also accept, and show, the numbers behind the words.
template <typename Value>
void AddWords(CLI::App* app, const char* name, const char* description,
              const std::map<std::string, Value>& words, Value* value) {
  std::string names, first;
  for (const auto& [word, means] : words) {
    names += (names.empty() ? "" : "|") + word;
    if (means == *value) first = word;
  }
  app->add_option_function<std::string>(
         name,
         [words, names, value, option = std::string(name)](const std::string& text) {
           const auto found = words.find(text);
           if (found == words.end()) {
             throw CLI::ValidationError(option,
                                        "'" + text.substr(0, 40) + "' given; allowed: " + names);
           }
           *value = found->second;
         },
         description)
      ->type_name(names)
      ->default_str(first);
}

}  // namespace

void AddDaemon(CLI::App* app, std::function<ExitCode()>* chosen) {
  const auto options = std::make_shared<DaemonOptions>();
  CLI::App* const broker =
      app->add_subcommand("broker", "Run the daemon through which processes share GPUs");
  broker->add_option("--config", options->config, "its configuration, in YAML")->type_name("FILE");
  broker->add_option("--socket", options->socket, "where it listens")->type_name("PATH");
  broker
      ->add_option("--metrics", options->metrics,
                   "where it serves /metrics: 127.0.0.1:9410, or a port of 127.0.0.1 alone")
      ->type_name("ADDRESS");
  broker
      ->add_option_function<std::string>(
          "--socket-mode",
          [options](const std::string& text) {
            const bool octal = !text.empty() && text.size() <= 4 &&
                               text.find_first_not_of("01234567") == std::string::npos;
            options->mode = octal ? static_cast<unsigned>(std::stoul(text, nullptr, 8)) : 01000;
            if (options->mode > 0777) {
              throw CLI::ValidationError("--socket-mode",
                                         "'" + text.substr(0, 40) + "' given; allowed: 0 to 0777");
            }
          },
          "who may connect to the socket; the configuration says who may register as which tenant")
      ->type_name("OCTAL")
      ->default_str("0666");
  CLI::Option* const check = broker->add_flag(
      "--check", options->check, "read the configuration, say whether it is valid, and end");
  broker->add_flag("--json", options->json, "with --check: say it as JSON")->needs(check);
  AddWords<GpuSource>(
      broker, "--gpu",
      "which GPUs there are, as the driver says: real, sim (simulated), auto: real if "
      "there is one; none: as the first process that opens one says",
      {{"auto", GpuSource::kAuto},
       {"real", GpuSource::kReal},
       {"sim", GpuSource::kSimulated},
       {"none", GpuSource::kNone}},
      &options->gpus);
  AddWords<broker::LogLevel>(broker, "--log", "the least level that is logged on stderr",
                             {{"debug", broker::LogLevel::kDebug},
                              {"info", broker::LogLevel::kInfo},
                              {"warning", broker::LogLevel::kWarning},
                              {"error", broker::LogLevel::kError}},
                             &options->level);
  AddWords<broker::LogFormat>(
      broker, "--log-format", "the form of a line of the log",
      {{"logfmt", broker::LogFormat::kLogfmt}, {"json", broker::LogFormat::kJson}},
      &options->format);
  broker->callback([=] { *chosen = [=] { return RunDaemon(*options); }; });
}

}  // namespace gpushare::cli
