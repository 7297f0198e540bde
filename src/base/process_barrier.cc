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
  // A forked child has to register again.
  if (Register()) return;
  // A system call filter was installed since. Callers that still rely on the barrier are served by waiting: a store becomes
  // visible to other processors within microseconds, and no load behind this wait is done before it. Changing a page's
  // protection would not help, since that does not interrupt every processor.
  has.store(kNo);
  const timespec while_stores_drain = {.tv_sec = 0, .tv_nsec = 1'000'000};
  nanosleep(&while_stores_drain, nullptr);
}

}  // namespace gpushare::base
