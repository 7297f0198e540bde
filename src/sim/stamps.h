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
#ifndef GPUSHARE_SIM_STAMPS_H_
#define GPUSHARE_SIM_STAMPS_H_

#include <cstdint>

#include "sim/command.h"

namespace gpushare::sim {

// Of a kernel that ends now. False: the device has no access to the words.
bool WriteStamps(const Command& command, uint64_t now);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STAMPS_H_
