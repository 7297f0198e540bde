// SPDX-License-Identifier: Apache-2.0
// `gpushare completion bash|zsh|fish`: shell completion, generated from the declared commands and options.
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

// InvalidArgument: the shell is not supported.
absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell);

// Adds the command. Add it last: it completes the commands that exist when it runs.
void AddCompletion(CLI::App* app, std::function<ExitCode()>* chosen);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_COMPLETION_H_
