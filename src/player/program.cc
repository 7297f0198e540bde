// SPDX-License-Identifier: Apache-2.0
#include "player/program.h"

namespace gpushare::player {

Program MakeProgram(const workload::KernelTrace& trace, const workload::SpinDevice& device,
                    const std::vector<CUfunc_st*>& functions) {
  Program program;
  program.steps.reserve(trace.kernels().size());
  for (const workload::TraceKernel& kernel : trace.kernels()) {
    const workload::SpinLaunch launch = workload::SpinLaunchOf(kernel, device);
    program.steps.push_back({functions[launch.entry], launch.grid, launch.block,
                             launch.shared_bytes, launch.duration_ns, launch.block_ns});
    program.duration += kernel.duration;
  }
  return program;
}

}  // namespace gpushare::player
