// SPDX-License-Identifier: Apache-2.0
#include "base/process_barrier.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// A page whose protection is reduced is taken out of the address translation of every processor that runs the process, by
// an interrupt that its kernel waits for.
bool ByProtection() {
  static void* const page =
      mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const int error = errno;
  bool done = mprotect(page, 1, PROT_READ | PROT_WRITE) == 0;
  if (done) *static_cast<volatile char*>(page) = 1;  // so that there is something to take out
  done = done && mprotect(page, 1, PROT_READ) == 0;
  errno = error;
  return done;
}

}  // namespace

bool HasProcessBarrier() {
  static const bool has =
      Call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && Call(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  return has;
}

void ProcessBarrier() {
  if (Call(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  // A forked child has to say again that it wants it; and a filter may have come since.
  if (Call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && Call(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
    return;
  }
  if (ByProtection()) return;
  // A store reaches the others within microseconds all the same: what a barrier does is to keep loads behind it from being
  // done before, for as long as it has not.
  const timespec while_stores_drain = {.tv_sec = 0, .tv_nsec = 1'000'000};
  nanosleep(&while_stores_drain, nullptr);
}

}  // namespace gpushare::base
