// SPDX-License-Identifier: Apache-2.0
#include "base/fd_io.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gpushare::base {
namespace {

constexpr timespec kReaderWait = {0, 50'000'000};

}  // namespace

int ReadAll(int fd, size_t most, std::string* text) {
  char part[1 << 12];  // also on small stacks of programs
  for (size_t size = 0;;) {
    const ssize_t got = read(fd, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return 0;
    text->append(part, static_cast<size_t>(got));
    size += static_cast<size_t>(got);
    if (size > most) return EFBIG;
  }
}

int ReadFile(const std::string& path, size_t most, std::string* text) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd ? ReadAll(fd.get(), most, text) : errno;
}

UniqueFd OpenToWrite(const std::string& path, int looks) {
  for (int i = 0;; ++i) {
    UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
    if (fd) {
      if (fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK) != 0) return UniqueFd();
      return fd;
    }
    if (errno != ENXIO || i >= looks) return fd;
    nanosleep(&kReaderWait, nullptr);
  }
}

std::string WriteError(int error) {
  return error == ENXIO ? "nobody reads this pipe" : std::strerror(error);
}

int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote == 0 ? EIO : errno;
    text.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

}  // namespace gpushare::base
