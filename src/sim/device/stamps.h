// SPDX-License-Identifier: Apache-2.0
// Stamps: what a kernel writes to say when it ran. Simulated kernels change nothing else in memory.
//
//   //gpushare.sim cost=param:0 stamps=param:2
//
// The parameter is the address of four words, or 0 for none. At the end of the kernel the words are as if each of its blocks
// had done the following, with times in ns on the device's clock:
//   0  the minimum of the old value and the time when the first block began
//   1  the maximum of the old value and the time when the last block ended
//   2  increased by the sum of the times for which each of the kernel's groups held its SM
//   3  unchanged: simulated SMs have no cycles
//
// With `away=yes` there is a fifth word, which the kernel reads: 0, or the address of a log that many kernels share. Whenever
// the device comes back from another process, a kernel that stood still on it updates the log:
//   0  the maximum of the old value and the time when the device came back. If the old value is later than when the
//      device was lost, another kernel has logged this absence, and the rest stays unchanged
//   1  the number of entries, increased by one
//   2  unchanged: the number of entries for which there is room
//   3, 4, then 5, 6 ...  one entry each: when the device was lost, and when it came back
#ifndef GPUSHARE_SIM_DEVICE_STAMPS_H_
#define GPUSHARE_SIM_DEVICE_STAMPS_H_

#include <cstdint>

#include "sim/stream/command.h"

namespace gpushare::sim {

// Writes the stamps of a kernel that ends now. False if the device has no access to the words.
bool WriteStamps(const Command& command, uint64_t now);

// Writes the log entry of an absence during which the kernel was on the device. False as above.
bool WriteAway(const Command& command, uint64_t from, uint64_t until);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_DEVICE_STAMPS_H_
