// SPDX-License-Identifier: Apache-2.0
// The driver's calls, either those that a program is linked with, or those of a driver library that it opened itself, which bypass
// preloaded libraries.
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

// The table of an open driver. Internal: it lacks an entry point.
absl::StatusOr<DriverTable> DriverTableOf(void* library);

// Makes calls on a stream of their own in the primary context of the first device. `step` is a kernel of a spin module loaded there.
absl::StatusOr<std::unique_ptr<Calls>> MakeDriverCalls(const DriverTable& driver,
                                                       const player::Step& step);

// The step with the shortest possible duration.
player::Step ShortOf(player::Step step);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_DRIVER_CALLS_H_
