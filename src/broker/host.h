// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, and the clock that the broker uses.
//
//   GPUSHARE_ASSIGN_OR_RETURN(Host host, OpenHost("sim"));
//   options.gpus = host.gpus; options.clock = &host.clock();
//
// Opening the host makes no context and takes no GPU memory.
#ifndef GPUSHARE_BROKER_HOST_H_
#define GPUSHARE_BROKER_HOST_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "broker/registry.h"
#include "driver/driver.h"

namespace gpushare::broker {

struct Host {
  std::unique_ptr<driver::Driver> driver;
  std::vector<GpuInfo> gpus;
  // The machine's clock, unless the GPU is simulated with its own clock.
  base::Clock& clock() const { return driver->clock(); }
};

// Lets this process, the broker, have as many descriptors as the machine allows: each process takes three or more of them, and a
// shell's limit is often 1024. Do not call it in a process that becomes another program, which would inherit the limit.
void AllowAllDescriptors();

// `driver` is driver::OpenOptions::path. Unavailable: there is no driver.
absl::StatusOr<Host> OpenHost(const std::string& driver);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_HOST_H_
