// SPDX-License-Identifier: Apache-2.0
// Finds the shared objects that programs load in place of the driver, and other installed files.
#ifndef GPUSHARE_CLI_RUN_PRELOAD_OBJECT_H_
#define GPUSHARE_CLI_RUN_PRELOAD_OBJECT_H_

#include <string>

#include "absl/status/statusor.h"

namespace gpushare::cli {

// The path of `file` (libgpushare_preload.so, libgpushare_preload_nvml.so, libgpushare_audit.so) beside this command, as installed or
// built, or in GPUSHARE_PRELOAD_DIR. Unavailable: it was not found; the message lists the places.
absl::StatusOr<std::string> FindPreloadObject(const char* file);

// The path of a file that `gpushare bench` needs, installed in <libdir>/gpushare/`folder` beside this command. Unavailable as above, with
// how to install it.
absl::StatusOr<std::string> FindInstalled(const std::string& folder, const std::string& file);

// Likewise for a folder of <datadir>/gpushare.
absl::StatusOr<std::string> FindData(const std::string& folder);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_RUN_PRELOAD_OBJECT_H_
