// SPDX-License-Identifier: Apache-2.0
// What a kernel writes that says when it ran: the one thing in memory that the simulated GPU's kernels change.
//
//   //gpushare.sim cost=param:0 stamps=param:2
//
// The parameter is the address of four words, or 0: nowhere. When the kernel ends they are as a kernel leaves them whose every
// block does this, with times in ns of the device's clock:
//   0  the least of what was there and when the first block began
//   1  the greatest of what was there and when the last ended
//   2  more by the sum of how long each of its groups held its SM
//   3  as it was: SMs have no cycles here
//
// With `away=yes` there is a fifth, which the kernel reads: 0, or the address of a log for many kernels. Whenever the device comes back
// from another process a kernel that stood still on it makes of the log
//   0  the greatest of what was there and when it came back. Where that is more than when it was gone, another has told it, and
//      the rest stays
//   1  one more: of the entries
//   2  as it was: how many have room
//   3, 4, then 5, 6 ...  an entry: when it was gone, and came back
#ifndef GPUSHARE_SIM_DEVICE_STAMPS_H_
#define GPUSHARE_SIM_DEVICE_STAMPS_H_

#include <cstdint>

#include "sim/stream/command.h"

namespace gpushare::sim {

// Of a kernel that ends now. False: the device has no access to the words.
bool WriteStamps(const Command& command, uint64_t now);

// The same, of a log: the device was another process's while the kernel was on it.
bool WriteAway(const Command& command, uint64_t from, uint64_t until);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_DEVICE_STAMPS_H_
