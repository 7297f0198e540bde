// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <cstdio>
#include <new>

#include "cli/command.h"

namespace {

// Who was started without one of them would get a socket or a file of its own in its place, and write its output there.
// Programs that it starts do not see what stands in.
void FillStandardDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // Of the wrong kind, so that reading and writing fail as they would.
    static_cast<void>(open("/dev/null", (fd == 0 ? O_WRONLY : O_RDONLY) | O_CLOEXEC));
  }
}

}  // namespace

int main(int argc, char** argv) {
  FillStandardDescriptors();
  try {
    return gpushare::cli::RunCommand(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("gpushare: the host has no memory left for this\n", stderr);
    return gpushare::cli::kExitFailed;
  }
}
