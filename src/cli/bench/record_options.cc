// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cli/bench/record.h"
#include "cli/gpu_option.h"

namespace gpushare::cli {
namespace {

// CLI::Range would accept NaN, for which neither comparison holds.
CLI::Validator SecondsWithin(double least, double most) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return "";
        return absl::StrCat(Quoted(text.substr(0, 40)), " given, ", least, " to ", most,
                            " allowed");
      },
      "");
}

}  // namespace

void AddRecordCommand(CLI::App* bench, std::function<ExitCode()>* chosen) {
  const auto options = std::make_shared<RecordOptions>();
  CLI::App* const record = bench->add_subcommand(
      "record", "Record the kernels of an unmodified program, as a trace for scenarios");
  AddGpuOptions(record, &options->kind, &options->device);
  record->remove_option(record->get_option("--device"));
  record
      ->add_option("--out", options->out,
                   "the trace; of several processes that launch kernels NAME-1.csv, NAME-2.csv ...")
      ->type_name("FILE")
      ->capture_default_str();
  record->add_flag("--force", options->force, "write --out anew where it is there already");
  record
      ->add_option("--skip", options->skip,
                   "how many kernels of each process to leave out before the first that is kept")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 40).description(""))
      ->type_name("N")
      ->capture_default_str();
  record
      ->add_option("--kernels", options->kernels, "how many kernels are kept at most, 1 to 1000000")
      ->check(CLI::Range(1, 1'000'000).description(""))
      ->type_name("N")
      ->capture_default_str();
  record
      ->add_option("--seconds", options->seconds,
                   "how long to record since the first kernel that is kept, 0.001 to 86400")
      ->check(SecondsWithin(0.001, 86400))
      ->type_name("S");
  record->add_option("--by", options->by, "cupti, events, or auto: CUPTI where there is one")
      ->check(CLI::IsMember({"auto", "cupti", "events"}).description(""))
      ->type_name("auto|cupti|events")
      ->capture_default_str();
  record->add_flag("--iteration", options->iteration,
                   "keep one iteration: what comes again and again at the end, with medians");
  record->add_flag("--stop", options->stop,
                   "end the program (SIGTERM) when --kernels or --seconds has been reached");
  record->add_option("command", options->command, "the program and its arguments, after --")
      ->required()
      ->type_name("PROGRAM [ARGUMENT]");
  record->positionals_at_end();
  record->callback([=] { *chosen = [=] { return RecordProgram(*options); }; });
}

}  // namespace gpushare::cli
