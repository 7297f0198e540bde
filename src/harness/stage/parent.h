// SPDX-License-Identifier: Apache-2.0
// Ends a program of the harness when the harness ends, however that happens.
#ifndef GPUSHARE_HARNESS_STAGE_PARENT_H_
#define GPUSHARE_HARNESS_STAGE_PARENT_H_

#include <csignal>

namespace gpushare::harness {

// Asks the kernel to send `signal` to this process when its parent ends. False: the parent is not (or no longer) process `number`.
bool EndWithParent(const char* number, int signal = SIGKILL);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_PARENT_H_
