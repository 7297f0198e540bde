// SPDX-License-Identifier: Apache-2.0
// cuLaunchKernel, of which programs that launch small kernels feel every nanosecond.
//
// It is what Gated<&Calls::LaunchKernel> does, by a way that is shorter where a thread launches what it launched before:
// Calls::LaunchKernelAgain(), on x86-64 in assembly (launch_kernel.S).
#ifndef GPUSHARE_SHIM_LAUNCH_KERNEL_H_
#define GPUSHARE_SHIM_LAUNCH_KERNEL_H_

#include <cuda.h>

#include "driver/table.h"
#include "work/calls.h"

namespace gpushare::shim {

using LaunchKernelFunction = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                      unsigned, unsigned, CUstream, void**, void**);

LaunchKernelFunction* LaunchKernelHook(bool per_thread);

// For as long as the process, before anybody comes by the hook.
void LaunchKernelsBy(const work::Calls& calls, const driver::Table& driver);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_LAUNCH_KERNEL_H_
