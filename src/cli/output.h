// SPDX-License-Identifier: Apache-2.0
// What the command leaves behind: its standard output, and files.
//
//   std::fputs(table.c_str(), stdout);
//   return FinishStdout("probe");                    // kExitOutput when it did not all get out
//
//   if (ExitCode code = CheckWritable("demo", path); code != kExitOk) return code;   // before the work
//   return WriteFile("demo", path, text);                                            // after it
//
// Each says on stderr what is wrong, with the subcommand's name.
#ifndef GPUSHARE_CLI_OUTPUT_H_
#define GPUSHARE_CLI_OUTPUT_H_

#include <string>

#include "absl/status/status.h"
#include "cli/exit_code.h"

namespace gpushare::cli {

// Says what the status says; its code is the caller's.
ExitCode Fail(const char* command, ExitCode code, const absl::Status& status);

// To standard output. Why it could not be written FinishStdout() says, of texts that do not fit into its buffer too.
void Print(const std::string& text);

// Flushes standard output; a full disk shows there, or in a write before.
ExitCode FinishStdout(const char* command);

// The name of a file that stands for standard output.
inline constexpr char kStdout[] = "-";

// Whether `path` could be written, as far as can be told without touching it: a typing error should not
// show after the work is done.
ExitCode CheckWritable(const char* command, const std::string& path);
ExitCode WriteFile(const char* command, const std::string& path, const std::string& text);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_OUTPUT_H_
