// SPDX-License-Identifier: Apache-2.0
#include "harness/results_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/fd_io.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace gpushare::harness {
namespace {

absl::Status CannotWriteResults(const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot write ", Printable(path, 256), ": ", base::WriteError(error)));
}

// The offset at which the next write goes; negative if the file has no offsets, like a pipe.
off_t NextPlace(int fd) {
  const bool appends = (fcntl(fd, F_GETFL) & O_APPEND) != 0;
  return lseek(fd, 0, appends ? SEEK_END : SEEK_CUR);
}

// Opens a regular file, locks it for as long as it is open, and only then truncates it, so that nothing of another run is lost.
absl::StatusOr<base::UniqueFd> OpenAlone(const std::string& path) {
  base::UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return CannotWriteResults(path, errno);
  // Any other error comes from a file system without locks.
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return absl::UnavailableError(
        absl::StrCat("cannot write ", Printable(path, 256),
                     ": another run is writing it; give each a file of its own"));
  }
  if (ftruncate(fd.get(), 0) != 0) return CannotWriteResults(path, errno);
  return fd;
}

}  // namespace

absl::StatusOr<ResultsFile> ResultsFile::Open(const std::string& path) {
  struct stat there;
  if (stat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode)) {
    GPUSHARE_ASSIGN_OR_RETURN(base::UniqueFd alone, OpenAlone(path));
    return ResultsFile(std::move(alone), path);
  }
  base::UniqueFd fd = base::OpenToWrite(path);
  if (!fd) return CannotWriteResults(path, errno);
  return ResultsFile(std::move(fd), path);
}

ResultsFile ResultsFile::OfStdout() {
  return {base::UniqueFd(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)),
          "standard output"};
}

absl::Status ResultsFile::Put(std::string_view line) {
  if (path_.empty()) return absl::OkStatus();
  const off_t begin = NextPlace(fd_.get());
  const int error = base::WriteAll(fd_.get(), line);
  if (error == 0) return absl::OkStatus();
  // Only a regular file can be truncated; a device or a pipe keeps what was written.
  if (begin >= 0) static_cast<void>(ftruncate(fd_.get(), begin) == 0);
  return CannotWriteResults(path_, error);
}

}  // namespace gpushare::harness
