// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, as the broker needs them: which there are, and whose clock it goes by.
//
//   GPUSHARE_ASSIGN_OR_RETURN(Host host, OpenHost("sim"));
//   options.gpus = host.gpus; options.clock = &host.clock();
//
// It makes no context, and takes no memory of any GPU.
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
  // The machine's, unless the GPU is simulated with a clock of its own.
  base::Clock& clock() const { return driver->clock(); }
};

// `driver` as driver::OpenOptions::path has it. Unavailable: there is none.
absl::StatusOr<Host> OpenHost(const std::string& driver);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_HOST_H_
