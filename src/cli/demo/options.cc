// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <system_error>

#include "cli/gpu_option.h"
#include "cli/output.h"
#include "gpushare/spec.h"

namespace gpushare::cli {
namespace {

// CLI::Range would accept NaN, for which neither comparison holds.
CLI::Validator Within(double least, double most, const std::string& range) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return "";
        return "'" + text.substr(0, 40) + "' given, " + range + " allowed";
      },
      range);
}

}  // namespace

void AddDemoOptions(CLI::App* app, DemoOptions* options) {
  AddGpuOptions(app, &options->gpu, &options->gpu_name);
  app->add_option("--trace", options->traces,
                  "kernel trace (CSV: kernel,bound,sms,duration_ns) in place of a tenant's "
                  "workload; the first "
                  "is the service's, then the training jobs', then the batch job's")
      ->expected(1)
      ->take_all()
      ->type_name("FILE");
  app->add_option("--policy", options->policy,
                  "policy of the two training jobs; `gpushare policies` lists them")
      ->capture_default_str()
      ->type_name("NAME")
      ->check([](const std::string& name) -> std::string {
        const std::vector<std::string> names = PolicyNames();
        if (std::find(names.begin(), names.end(), name) != names.end()) return "";
        std::string known;
        for (const std::string& each : names) known += (known.empty() ? "" : ", ") + each;
        return "unknown policy '" + name.substr(0, 60) + "': known are " + known;
      });
  app->add_option("--seconds", options->seconds, "device time to run for")
      ->capture_default_str()
      ->check(Within(1, 3600, "1 to 3600"));
  app->add_option("--load", options->load, "load of the service, part of the device")
      ->capture_default_str()
      ->check(Within(0.01, 0.9, "0.01 to 0.9"));
  app->add_option("--seed", options->seed, "seed of the arrivals")
      ->capture_default_str()
      ->check(CLI::Validator(
          [](const std::string& text) -> std::string {
            // The conversion that follows would wrap negative numbers and truncate large ones.
            int64_t seed = 0;
            const char* const end = text.data() + text.size();
            const auto [stop, error] = std::from_chars(text.data(), end, seed);
            if (error == std::errc() && stop == end && seed >= 0) return "";
            return "'" + text.substr(0, 40) + "' given, 0 to 9223372036854775807 allowed";
          },
          "0 to 2^63-1"));
  const CLI::Validator named(
      [](const std::string& path) -> std::string {
        return path.empty() ? "the name of a file is wanted, an empty one was given" : "";
      },
      "");
  const CLI::Validator in_file(
      [](const std::string& path) -> std::string {
        return path == kStdout ? "'-' given, a file is wanted" : "";
      },
      "");
  app->add_option("--json", options->json_path,
                  "write all figures there; '-': on standard output, instead of the table")
      ->type_name("OUT")
      ->check(named);
  app->add_option("--plot", options->plot_path, "write the plot of shares over time there, as SVG")
      ->type_name("OUT")
      ->check(named)
      ->check(in_file);
  app->add_option(
         "--trace-out", options->trace_path,
         "write what happened at the gate and on the device there, for ui.perfetto.dev: the "
         "latest 262144 events of the run of all four")
      ->type_name("OUT")
      ->check(named)
      ->check(in_file);
  app->add_flag("--progress", options->progress, "show progress also when stderr is no terminal");
  app->add_flag("--quiet", options->quiet, "show no progress and no notes");
}

}  // namespace gpushare::cli
