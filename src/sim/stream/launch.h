// SPDX-License-Identifier: Apache-2.0
// Kernel launches.
#ifndef GPUSHARE_SIM_STREAM_LAUNCH_H_
#define GPUSHARE_SIM_STREAM_LAUNCH_H_

#include "sim/module/module.h"
#include "sim/stream/command.h"

namespace gpushare::sim {

// Makes the command a launch of the kernel, with the plan's duration and the device's noise.
void FillKernel(Command* command, const Function& function, const KernelPlan& plan);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_LAUNCH_H_
