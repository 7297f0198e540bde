// SPDX-License-Identifier: Apache-2.0
// fast_path --sdk PROGRAM --driver PROGRAM --preload LIBRARY --build TEXT [--write] TABLE
//
// Counts what the hooks of both programs cost and compares the counts with the table. The exit status is 1 on a difference, and
// 77 if the machine does not allow counting. --write replaces the table.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/fast_path/budget.h"
#include "bench/fast_path/steps.h"

extern char** environ;

namespace gpushare::fast_path {
namespace {

constexpr char kDriver[] = "/gpushare/sim/libcuda.so.1";

struct Options {
  std::string sdk, driver, preload, build, table;
  bool write = false;
};

bool Parse(int argc, char** argv, Options* options) {
  const std::pair<const char*, std::string*> named[] = {{"--sdk", &options->sdk},
                                                        {"--driver", &options->driver},
                                                        {"--preload", &options->preload},
                                                        {"--build", &options->build}};
  for (int i = 1; i < argc; ++i) {
    const auto* const found = std::find_if(std::begin(named), std::end(named), [&](const auto& n) {
      return std::strcmp(argv[i], n.first) == 0;
    });
    if (found != std::end(named)) {
      if (++i == argc) return false;
      *found->second = argv[i];
    } else if (std::strcmp(argv[i], "--write") == 0) {
      options->write = true;
    } else {
      options->table = argv[i];
    }
  }
  return !options->sdk.empty() && !options->driver.empty() && !options->preload.empty() &&
         !options->table.empty();
}

// Our environment without the variables that would change what the programs do.
std::vector<std::string> Environment() {
  std::vector<std::string> lines;
  for (char** each = environ; *each != nullptr; ++each) {
    if (!absl::StartsWith(*each, "GPUSHARE_") && !absl::StartsWith(*each, "LD_PRELOAD"))
      lines.push_back(*each);
  }
  lines.push_back("GPUSHARE_DRIVER=sim");
  return lines;
}

Row RowOf(const std::string& hook, std::vector<Counts> samples, const Counts& nothing) {
  std::nth_element(samples.begin(), samples.begin() + static_cast<long>(samples.size() / 2),
                   samples.end());
  const Counts& counts = samples[samples.size() / 2];
  return {hook,
          counts.instructions - std::min(counts.instructions, nothing.instructions),
          counts.atomics,
          counts.clock_reads,
          counts.allocations,
          counts.syscalls,
          counts.driver_calls.empty() ? "-" : absl::StrJoin(counts.driver_calls, ",")};
}

absl::Status Measure(const std::string& kind, const std::string& program,
                     const std::vector<std::string>& environment, Budget* budget) {
  absl::StatusOr<Pieces> pieces = CountSteps({program}, environment, kDriver);
  if (!pieces.ok()) return pieces.status();
  Counts nothing;  // counts of the marks themselves
  for (const auto& [name, samples] : *pieces) {
    if (name == "nothing") {
      nothing = *std::min_element(samples.begin(), samples.end());
    } else {
      budget->rows.push_back(RowOf(absl::StrCat(kind, ": ", name), samples, nothing));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    std::cerr << "usage: fast_path --sdk PROGRAM --driver PROGRAM --preload LIBRARY --build TEXT "
                 "[--write] TABLE\n";
    return 2;
  }
  Budget measured;
  measured.build = options.build;
  const std::vector<std::string> plain = Environment();
  std::vector<std::string> preloaded = plain;
  preloaded.push_back("LD_PRELOAD=" + options.preload);
  preloaded.push_back("GPUSHARE_SPEC=memory=8GiB,cap=50%");
  preloaded.push_back("GPUSHARE_BROKER=");
  absl::Status status = Measure("sdk", options.sdk, plain, &measured);
  if (status.ok()) status = Measure("preloaded", options.driver, preloaded, &measured);
  if (!status.ok()) {
    std::cerr << status << "\n";
    return absl::IsFailedPrecondition(status) ? 77 : 1;
  }
  std::cout << ToText(measured);
  if (options.write) {
    std::ofstream(options.table) << ToText(measured);
    return 0;
  }
  std::ifstream file(options.table);
  const absl::StatusOr<Budget> table = FromText({std::istreambuf_iterator<char>(file), {}});
  if (!table.ok()) {
    std::cerr << options.table << ": " << table.status() << "\n";
    return 1;
  }
  const std::vector<std::string> differences = Compare(*table, measured);
  for (const std::string& difference : differences) std::cerr << difference << "\n";
  if (table->build != measured.build) {
    std::cout << "instructions were not compared: the table is of " << table->build << "\n";
  }
  if (!differences.empty()) {
    std::cerr << "what a hook costs has changed; if that is meant: cmake --build build/dev "
                 "--target fast_path_budget\n";
  }
  return differences.empty() ? 0 : 1;
}

}  // namespace
}  // namespace gpushare::fast_path

int main(int argc, char** argv) { return gpushare::fast_path::Main(argc, argv); }
