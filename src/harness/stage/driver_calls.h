// SPDX-License-Identifier: Apache-2.0
// Calls of the driver, by the names that a program is linked with or by those of a library that it has opened itself, past
// whatever stands in for the driver.
#ifndef GPUSHARE_HARNESS_STAGE_DRIVER_CALLS_H_
#define GPUSHARE_HARNESS_STAGE_DRIVER_CALLS_H_

#include <cuda.h>

#include <memory>

#include "absl/status/statusor.h"
#include "harness/stage/calls.h"
#include "player/program.h"

namespace gpushare::harness {

struct DriverTable {
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuCtxSetCurrent) set_current = nullptr;
  decltype(&cuStreamCreate) create_stream = nullptr;
  decltype(&cuStreamSynchronize) synchronize = nullptr;
  decltype(&cuLaunchKernel) launch = nullptr;
  decltype(&cuMemAlloc) allocate = nullptr;
  decltype(&cuMemFree) free = nullptr;
  decltype(&cuStreamBeginCapture) begin_capture = nullptr;
  decltype(&cuStreamEndCapture) end_capture = nullptr;
  decltype(&cuGraphInstantiateWithFlags) instantiate = nullptr;
  decltype(&cuGraphLaunch) launch_graph = nullptr;
};

// Of a driver that is open already. Internal: it lacks one.
absl::StatusOr<DriverTable> DriverTableOf(void* library);

// On a stream of its own in the primary context of the first device. `step`: a kernel of a spin module that is loaded there.
absl::StatusOr<std::unique_ptr<Calls>> MakeDriverCalls(const DriverTable& driver,
                                                       const player::Step& step);

// As short as kernels are.
player::Step ShortOf(player::Step step);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_DRIVER_CALLS_H_
