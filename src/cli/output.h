// SPDX-License-Identifier: Apache-2.0
// The command's output: standard output and files.
//
//   std::fputs(table.c_str(), stdout);
//   return FinishStdout("probe");                    // kExitOutput if something could not be written
//
//   if (ExitCode code = CheckWritable("demo", path); code != kExitOk) return code;   // before the work
//   return WriteFile("demo", path, text);                                            // after it
//
// Each function reports errors on stderr with the subcommand's name.
#ifndef GPUSHARE_CLI_OUTPUT_H_
#define GPUSHARE_CLI_OUTPUT_H_

#include <string>

#include "absl/status/status.h"
#include "cli/exit_code.h"

namespace gpushare::cli {

// Prints the status's message and returns `code`.
ExitCode Fail(const char* command, ExitCode code, const absl::Status& status);

// Writes to standard output. Errors are reported by FinishStdout(), including those of texts larger than the buffer.
void Print(const std::string& text);

// Flushes standard output and reports an error of this or an earlier write, such as a full disk.
ExitCode FinishStdout(const char* command);

// The name of a file that stands for standard output.
inline constexpr char kStdout[] = "-";

// Whether `path` can be written, as far as can be told without changing it. Call it before the work, so that
// a mistyped path is reported early.
ExitCode CheckWritable(const char* command, const std::string& path);
ExitCode WriteFile(const char* command, const std::string& path, const std::string& text);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_OUTPUT_H_
