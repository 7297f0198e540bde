// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/fd_io.h"
#include "base/unique_fd.h"

namespace gpushare::cli {
namespace {

// The errno of a failed write in Print(); 0 if none failed.
int print_error = 0;

// `error` is an errno, or 0 if it is unknown.
ExitCode CannotWrite(const char* command, const char* what, int error) {
  std::fprintf(stderr, "gpushare %s: cannot write %s%s%s\n", command, what, error == 0 ? "" : ": ",
               error == 0 ? "" : base::WriteError(error).c_str());
  return kExitOutput;
}

}  // namespace

ExitCode Fail(const char* command, ExitCode code, const absl::Status& status) {
  std::fprintf(stderr, "gpushare %s: %s\n", command, std::string(status.message()).c_str());
  return code;
}

void Print(const std::string& text) {
  errno = 0;
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written != text.size() && print_error == 0) print_error = errno;
}

ExitCode FinishStdout(const char* command) {
  errno = 0;
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed_before) return kExitOk;
  const int error = print_error != 0 ? print_error : errno;
  // The reader has closed the pipe, like `head`, and SIGPIPE is ignored: no message is needed.
  pollfd out = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0) return kExitOutput;
  return CannotWrite(command, "standard output", error);
}

ExitCode CheckWritable(const char* command, const std::string& path) {
  if (path == kStdout) return kExitOk;
  if (path.empty()) return CannotWrite(command, "a file without a name", ENOENT);
  if (path.back() == '/') return CannotWrite(command, path.c_str(), EISDIR);
  struct stat there;
  if (stat(path.c_str(), &there) == 0) {
    if (S_ISDIR(there.st_mode)) return CannotWrite(command, path.c_str(), EISDIR);
    if (access(path.c_str(), W_OK) != 0) return CannotWrite(command, path.c_str(), errno);
    return kExitOk;
  }
  if (errno != ENOENT) return CannotWrite(command, path.c_str(), errno);
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK | X_OK) != 0) return CannotWrite(command, path.c_str(), errno);
  return kExitOk;
}

ExitCode WriteFile(const char* command, const std::string& path, const std::string& text) {
  if (path == kStdout) {
    Print(text);
    return FinishStdout(command);
  }
  base::UniqueFd file = base::OpenToWrite(path);
  if (!file) return CannotWrite(command, path.c_str(), errno);
  int error = base::WriteAll(file.get(), text);
  if (close(file.Release()) != 0 && error == 0) error = errno;
  return error == 0 ? kExitOk : CannotWrite(command, path.c_str(), error);
}

}  // namespace gpushare::cli
