// SPDX-License-Identifier: Apache-2.0
// What the harness's programs start and leave behind: a preloaded library's own helpers, in sessions of their own too.
#ifndef GPUSHARE_HARNESS_ORPHANS_H_
#define GPUSHARE_HARNESS_ORPHANS_H_

namespace gpushare::harness {

// From now on they become this process's children when those that started them end. Of the whole process: for one that
// starts nothing but the harness's programs.
void AdoptOrphans();

// Ends all children of this process, and theirs, if it adopts orphans; else nothing. Those that it started itself have been
// waited for.
void EndOrphans();

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_ORPHANS_H_
