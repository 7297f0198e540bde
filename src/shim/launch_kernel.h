// SPDX-License-Identifier: Apache-2.0
// The hook of cuLaunchKernel, where every nanosecond counts for programs that launch small kernels.
//
// It does what Gated<&Calls::LaunchKernel> does, with a fast path for a thread that repeats an earlier launch:
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

// Sets the objects that the hook uses. They must stay valid for the lifetime of the process. Call it before the hook can be
// called.
void LaunchKernelsBy(const work::Calls& calls, const driver::Table& driver);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_LAUNCH_KERNEL_H_
