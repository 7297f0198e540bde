// SPDX-License-Identifier: Apache-2.0
// The bytes of copies and sets.
#ifndef GPUSHARE_SIM_STREAM_COPY_H_
#define GPUSHARE_SIM_STREAM_COPY_H_

#include <cstdint>

#include "sim/stream/command.h"

namespace gpushare::sim {

// Performs the copy or set in memory and counts its bytes. False if the device has no access to one of the addresses.
bool MoveBytes(const Command& command);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_COPY_H_
