// SPDX-License-Identifier: Apache-2.0
// What happens to memory when a stream reaches an allocation or a free.
#ifndef GPUSHARE_SIM_STREAM_MEMORY_WORK_H_
#define GPUSHARE_SIM_STREAM_MEMORY_WORK_H_

#include "sim/stream/command.h"

namespace gpushare::sim {

// The command has completed or was dropped; in both cases the memory is returned.
void FinishMemory(const MemoryWork& work);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_MEMORY_WORK_H_
