// SPDX-License-Identifier: Apache-2.0
// A program of the harness's ends when the harness does, of whatever that dies.
#ifndef GPUSHARE_HARNESS_STAGE_PARENT_H_
#define GPUSHARE_HARNESS_STAGE_PARENT_H_

#include <csignal>

namespace gpushare::harness {

// The kernel kills this process when its parent ends, or sends it another `signal`. False: the parent is not the process of
// that number (any more).
bool EndWithParent(const char* number, int signal = SIGKILL);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_PARENT_H_
