// SPDX-License-Identifier: Apache-2.0
// A full memory barrier in every thread of the process, issued by the caller (membarrier(2)). It lets a frequent path do
// without a fence when the other side runs rarely.
//
//   often:   mine.store(x);  std::atomic_signal_fence(std::memory_order_seq_cst);  if (theirs.load() ...)
//   rarely:  theirs.store(y);  base::ProcessBarrier();  if (mine.load() ...)
//
// At least one of the two sees the other's store.
//
// Threading: thread-safe. Takes a few microseconds.
#ifndef GPUSHARE_BASE_PROCESS_BARRIER_H_
#define GPUSHARE_BASE_PROCESS_BARRIER_H_

namespace gpushare::base {

// False if the kernel has no such barrier (before Linux 4.14) or a system call filter forbids it. The kernel is asked once;
// if a filter is installed later, the answer is false from the first barrier that it refuses.
bool HasProcessBarrier();

// Call it only if HasProcessBarrier() has ever returned true.
void ProcessBarrier();

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_PROCESS_BARRIER_H_
