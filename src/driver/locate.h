// SPDX-License-Identifier: Apache-2.0
// Which shared object to open as the driver.
#ifndef GPUSHARE_DRIVER_LOCATE_H_
#define GPUSHARE_DRIVER_LOCATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::driver {

struct DriverFile {
  std::string path;
  bool simulated = false;  // "sim" was asked for
};

// An empty `asked` means GPUSHARE_DRIVER, else "libcuda.so.1". "sim" means the simulated GPU's file;
// Unavailable, with the places searched, if it is not found. Anything else is returned unchanged.
absl::StatusOr<DriverFile> LocateDriver(const std::string& asked);

// Where the simulated GPU is searched for, in order: only GPUSHARE_SIM_DRIVER if it is set; otherwise
// beside the object that holds this code as installed, then in its build tree.
std::vector<std::string> SimulatedDriverPlaces();

// Tells how to use the simulated GPU. Appended to every message about a missing real driver.
extern const char kSimulatedGpuHint[];

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_LOCATE_H_
