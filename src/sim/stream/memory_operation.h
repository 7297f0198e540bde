// SPDX-License-Identifier: Apache-2.0
// Memory operations of streams: writing a word, and waiting until a word has a value.
//
// A wait that is not satisfied blocks its stream. It is looked at again whenever the device did something
// and, as the host writes memory without a word to anybody, whenever a thread spends time or waits.
#ifndef GPUSHARE_SIM_STREAM_MEMORY_OPERATION_H_
#define GPUSHARE_SIM_STREAM_MEMORY_OPERATION_H_

#include <cstdint>

#include "sim/stream/command.h"

namespace gpushare::sim {

// Whether a stream can use the word: device memory that is live, managed or page-locked host memory.
bool IsOperand(uint64_t address, uint32_t bytes);

// What a kWaitValue waits for that is over when a record of an event of several processes is complete.
ValueWork SharedRecord(uint32_t index, uint64_t record);

// Makes the stream of a kWaitValue that starts wait.
void BlockOnValue(Command* command);
// Completes the waits that are satisfied by now.
void CheckValueWaits();

// What a kWriteValue does. False: the device has no access to the word.
bool WriteValue(const Command& command);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_MEMORY_OPERATION_H_
