// SPDX-License-Identifier: Apache-2.0
// Whether launches pass the preloaded library on their way to the driver: as many are put on the first GPU as a program
// would, by the name and by cuGetProcAddress, and the library is asked how many it has seen.
//
//   LaunchTrial trial;                       // first of all: a child that is forked later has no driver
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
    uint64_t reached = 0;  // the driver, which has done them
    uint64_t seen = 0;     // by the library
  };
  // Once. `object`: libgpushare_preload.so. FailedPrecondition: what kept it from launching.
  absl::StatusOr<Launches> Run(const std::string& object, bool simulated);

 private:
  base::UniqueFd tell_, hear_;
  pid_t child_ = -1;
};

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_LAUNCH_TRIAL_H_
