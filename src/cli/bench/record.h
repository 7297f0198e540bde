// SPDX-License-Identifier: Apache-2.0
// `gpushare bench record`: records the kernels of an unmodified program as a trace.
//
// The program runs under the preloaded library, which here records (src/shim/record) and limits nothing. It writes to a folder beside
// the output. However the program ends, that folder's content becomes the trace.
#ifndef GPUSHARE_CLI_BENCH_RECORD_H_
#define GPUSHARE_CLI_BENCH_RECORD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/exit_code.h"
#include "cli/open_gpu.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

struct RecordOptions {
  GpuKind kind = GpuKind::kAuto;
  std::string device = "0";
  std::string out = "trace.csv";
  bool force = false;
  uint64_t skip = 0, kernels = 1'000'000;
  double seconds = 0;  // 0: no limit
  bool iteration = false;
  std::string by = "auto";
  bool stop = false;  // end the program when the recording is complete
  std::vector<std::string> command;
};

void AddRecordCommand(CLI::App* bench, std::function<ExitCode()>* chosen);
// Returns the program's exit status, or an error code if there is no trace.
ExitCode RecordProgram(const RecordOptions& options);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BENCH_RECORD_H_
