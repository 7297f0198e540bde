// SPDX-License-Identifier: Apache-2.0
// Tests whether launches pass through the preloaded library on their way to the driver: launches kernels on the first GPU as a
// program would, by name and by cuGetProcAddress, and asks the library how many it has seen.
//
//   LaunchTrial trial;                       // before the driver is used: it cannot be used in a child forked later
//   ... trial.Run(object, simulated) ...
#ifndef GPUSHARE_CLI_LAUNCH_TRIAL_H_
#define GPUSHARE_CLI_LAUNCH_TRIAL_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace gpushare::cli {

class LaunchTrial {
 public:
  LaunchTrial();
  ~LaunchTrial();
  LaunchTrial(const LaunchTrial&) = delete;
  LaunchTrial& operator=(const LaunchTrial&) = delete;

  struct Launches {
    uint64_t reached = 0;  // launches that the driver executed
    uint64_t seen = 0;     // launches that the library saw
  };
  // Call it once. `object` is libgpushare_preload.so. FailedPrecondition: why it could not launch.
  absl::StatusOr<Launches> Run(const std::string& object, bool simulated);

 private:
  base::UniqueFd tell_, hear_;
  pid_t child_ = -1;
};

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_LAUNCH_TRIAL_H_
