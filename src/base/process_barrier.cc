// SPDX-License-Identifier: Apache-2.0
#include "base/process_barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>

namespace gpushare::base {
namespace {

bool Call(int command) {
  const int error = errno;
  const bool done = syscall(SYS_membarrier, command, 0) == 0;
  errno = error;
  return done;
}

bool Register() {
  return Call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && Call(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

enum Has : int { kNotAsked, kYes, kNo };
std::atomic<int> has{kNotAsked};

}  // namespace

bool HasProcessBarrier() {
  int now = has.load(std::memory_order_relaxed);
  if (now != kNotAsked) return now == kYes;
  const int answer = Register() ? kYes : kNo;
  return (has.compare_exchange_strong(now, answer) ? answer : now) == kYes;
}

void ProcessBarrier() {
  if (Call(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  // A forked child has to say again that it wants it.
  if (Register()) return;
  // A filter has come since. What was begun in the belief that there is one ends as well: a store reaches the others within
  // microseconds all the same, and what a barrier does is to keep loads behind it from being done before, for as long as it
  // has not. To take a page's protection from it is no way: not every processor is interrupted for that.
  has.store(kNo);
  const timespec while_stores_drain = {.tv_sec = 0, .tv_nsec = 1'000'000};
  nanosleep(&while_stores_drain, nullptr);
}

}  // namespace gpushare::base
