// SPDX-License-Identifier: Apache-2.0
// The bytes of copies and sets.
#ifndef GPUSHARE_SIM_STREAM_COPY_H_
#define GPUSHARE_SIM_STREAM_COPY_H_

#include <cstdint>

#include "sim/stream/command.h"

namespace gpushare::sim {

// Does what the copy or set does to memory, and counts its bytes. False: the device has no access to an
// address of it.
bool MoveBytes(const Command& command);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_COPY_H_
