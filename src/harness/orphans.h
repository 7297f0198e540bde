// SPDX-License-Identifier: Apache-2.0
// Finds and ends processes that the harness's programs started and left behind, such as the helpers of a preloaded library, even
// if they have sessions of their own.
#ifndef GPUSHARE_HARNESS_ORPHANS_H_
#define GPUSHARE_HARNESS_ORPHANS_H_

#include <string>
#include <utility>

namespace gpushare::harness {

// The environment variable that marks the harness's programs, and so everything that they start.
std::pair<std::string, std::string> MarkOfThisProcess();

// Makes this process the parent of its descendants whose own parent has ended (PR_SET_CHILD_SUBREAPER).
void AdoptOrphans();

// After AdoptOrphans(), ends the children of this process that have its mark, and their descendants. Call it when the programs
// that the harness started have been waited for. Children without the mark are left alone: a shell may have started some before
// it became this program by exec, and the first process of a container adopts all others.
void EndOrphans();

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_ORPHANS_H_
