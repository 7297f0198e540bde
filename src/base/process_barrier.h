// SPDX-License-Identifier: Apache-2.0
// A full memory barrier in every thread of the process, made by the one that calls it: what stands against a fence on a
// path that is walked often, where the other side comes by rarely.
//
//   often:   mine.store(x);  std::atomic_signal_fence(std::memory_order_seq_cst);  if (theirs.load() ...)
//   rarely:  theirs.store(y);  base::ProcessBarrier();  if (mine.load() ...)
//
// One of the two sees what the other has stored.
//
// Threading: thread-safe. It takes a microsecond or a few.
#ifndef GPUSHARE_BASE_PROCESS_BARRIER_H_
#define GPUSHARE_BASE_PROCESS_BARRIER_H_

namespace gpushare::base {

// False: the kernel has none (before Linux 4.14, or forbidden by a filter of system calls). It is asked once; where a filter
// comes later, false from the first barrier on that it forbade.
bool HasProcessBarrier();

// Where there is one, or was.
void ProcessBarrier();

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_PROCESS_BARRIER_H_
