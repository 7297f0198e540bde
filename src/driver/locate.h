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

// Empty: GPUSHARE_DRIVER, else "libcuda.so.1". "sim": the simulated GPU's file, Unavailable with the
// places looked at when it is nowhere. All else is returned as it is.
absl::StatusOr<DriverFile> LocateDriver(const std::string& asked);

// Where the simulated GPU is looked for, in order: GPUSHARE_SIM_DRIVER and nothing else when it is
// set; otherwise beside the object that holds this code, as installed, then in its build tree.
std::vector<std::string> SimulatedDriverPlaces();

// How to ask for the simulated GPU; ends every message about a real driver that is not there.
extern const char kSimulatedGpuHint[];

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_LOCATE_H_
