// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/parent.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstring>

namespace gpushare::harness {

bool EndWithParent(const char* number, int signal) {
  pid_t parent = 0;
  std::from_chars(number, number + std::strlen(number), parent);
  // In this order: if the parent ends in between, getppid() has changed.
  return prctl(PR_SET_PDEATHSIG, signal) == 0 && getppid() == parent;
}

}  // namespace gpushare::harness
