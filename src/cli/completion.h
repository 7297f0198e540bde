// SPDX-License-Identifier: Apache-2.0
// `gpushare completion bash|zsh|fish`: what a shell completes, made of the commands and options themselves.
//
//   source <(gpushare completion bash)
#ifndef GPUSHARE_CLI_COMPLETION_H_
#define GPUSHARE_CLI_COMPLETION_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/exit_code.h"

namespace CLI {
class App;
}

namespace gpushare::cli {

// InvalidArgument: there is none for that shell.
absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell);

// Adds the command, last of all: it completes those that are there when it runs.
void AddCompletion(CLI::App* app, std::function<ExitCode()>* chosen);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_COMPLETION_H_
