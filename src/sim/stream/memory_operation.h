// SPDX-License-Identifier: Apache-2.0
// Memory operations of streams: writing a word, and waiting until a word has a value.
//
// A wait that is not satisfied blocks its stream. It is checked again whenever the device did something and, because the host
// writes memory without telling the driver, whenever a thread spends time or waits.
#ifndef GPUSHARE_SIM_STREAM_MEMORY_OPERATION_H_
#define GPUSHARE_SIM_STREAM_MEMORY_OPERATION_H_

#include <cstdint>

#include "sim/stream/command.h"

namespace gpushare::sim {

// Whether a stream can use the word: live device memory, managed memory, or page-locked host memory.
bool IsOperand(uint64_t address, uint32_t bytes);

// The work of a kWaitValue that waits until a record of an event shared by processes is complete.
ValueWork SharedRecord(uint32_t index, uint64_t record);

// Blocks the stream of a kWaitValue that starts.
void BlockOnValue(Command* command);
// Completes the waits that are satisfied now.
void CheckValueWaits();

// Performs a kWriteValue. False if the device has no access to the word.
bool WriteValue(const Command& command);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_MEMORY_OPERATION_H_
