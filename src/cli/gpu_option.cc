// SPDX-License-Identifier: Apache-2.0
#include "cli/gpu_option.h"

#include <CLI/CLI.hpp>

namespace gpushare::cli {
namespace {

struct Word {
  const char* word;
  GpuKind kind;
};
constexpr Word kKinds[] = {
    {"real", GpuKind::kReal}, {"sim", GpuKind::kSimulated}, {"auto", GpuKind::kAuto}};

}  // namespace

void AddGpuOptions(CLI::App* app, GpuKind* kind, std::string* device) {
  // CLI::CheckedTransformer would also accept, and show, the numbers behind the words.
  const CLI::Validator kinds(
      [](std::string& text) -> std::string {
        for (const Word& each : kKinds) {
          if (text != each.word) continue;
          text = std::to_string(static_cast<int>(each.kind));
          return "";
        }
        return "'" + text.substr(0, 40) + "' given, real, sim or auto allowed";
      },
      "");
  app->add_option("--gpu", *kind,
                  "where to run: real, sim (simulated), or auto: real if there is one")
      ->transform(kinds)
      ->type_name("real|sim|auto")
      ->default_str("auto");
  app->add_option("--device", *device, "which GPU: ordinal, UUID or PCI id")->capture_default_str();
}

}  // namespace gpushare::cli
