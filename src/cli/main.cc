// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <cstdio>
#include <new>
#include <system_error>

#include "cli/command.h"

namespace {

// Opens missing standard descriptors. Otherwise the next socket or file would get such a number, and output would be written
// there. The replacements are closed on exec, so programs that this command starts do not see them.
void FillStandardDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // Opened for the wrong direction, so that reads and writes fail as with a closed descriptor.
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
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    std::fputs("gpushare: the host gives no more threads (a limit of processes or of memory)\n",
               stderr);
  }
  return gpushare::cli::kExitFailed;
}
