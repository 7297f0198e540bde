// SPDX-License-Identifier: Apache-2.0
// A kernel trace that is ready to launch.
#ifndef GPUSHARE_PLAYER_PROGRAM_H_
#define GPUSHARE_PLAYER_PROGRAM_H_

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "workload/spin.h"
#include "workload/trace.h"

struct CUfunc_st;

namespace gpushare::player {

struct Step {
  CUfunc_st* function;
  unsigned grid, block, shared_bytes;
  uint64_t duration_ns, block_ns;  // the kernel's parameters, in order
  uint64_t stamps = 0;  // parameter: where the kernel writes when it ran (workload/spin.h)
};

struct Program {
  std::vector<Step> steps;
  Nanos duration{0};  // device time of one pass, when alone
};

// `functions[i]` is the loaded form of entry i of the trace's spin module.
Program MakeProgram(const workload::KernelTrace& trace, const workload::SpinDevice& device,
                    const std::vector<CUfunc_st*>& functions);

}  // namespace gpushare::player

#endif  // GPUSHARE_PLAYER_PROGRAM_H_
