// SPDX-License-Identifier: Apache-2.0
// What the harness's programs start and leave behind: a preloaded library's own helpers, in sessions of their own too.
#ifndef GPUSHARE_HARNESS_ORPHANS_H_
#define GPUSHARE_HARNESS_ORPHANS_H_

#include <string>
#include <utility>

namespace gpushare::harness {

// A variable that the harness's programs, and so what they start, have beside theirs.
std::pair<std::string, std::string> MarkOfThisProcess();

// From now on they become this process's children when those that started them end.
void AdoptOrphans();

// Ends the children of this process that have its mark, and theirs, if it adopts orphans; else nothing. Those that it started
// itself have been waited for. Others are left alone: a shell may have started some before it became this program, and to the
// first process of a container come all that are left.
void EndOrphans();

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_ORPHANS_H_
