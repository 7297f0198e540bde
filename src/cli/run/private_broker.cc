// SPDX-License-Identifier: Apache-2.0
#include "cli/run/private_broker.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/fd_io.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "broker/host.h"
#include "broker/json.h"
#include "broker/service.h"

namespace gpushare::cli {
namespace {

// Creates a folder that only this user can enter.
absl::StatusOr<std::string> NewFolder() {
  std::vector<std::string> places;
  if (const auto runtime = base::GetEnv("XDG_RUNTIME_DIR")) places.push_back(*runtime);
  places.push_back(base::GetEnv("TMPDIR").value_or("/tmp"));
  int why = ENOENT;
  for (const std::string& place : places) {
    std::string path = place + "/gpushare-run-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return path;
    why = errno;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "no folder for the broker's socket in XDG_RUNTIME_DIR or TMPDIR: ", std::strerror(why)));
}

// Whether any process was started with the broker's socket in its environment, and so may still register. The environment is the
// only trace that survives exec, shells that have ended, and programs that close unknown descriptors.
bool SomebodyKnows(const std::string& socket) {
  const std::string wanted = absl::StrCat("GPUSHARE_BROKER=", socket);
  std::error_code none;
  for (std::filesystem::directory_iterator at("/proc", none), end; !none && at != end;
       at.increment(none)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream environment(at->path() / "environ",
                              std::ios::binary);  // fails for other users' processes
    for (std::string each; std::getline(environment, each, '\0');) {
      if (each == wanted) return true;
    }
  }
  return false;
}

// Runs the broker. Closes `ready` without output once it listens; on failure writes the error there.
void Serve(const std::string& folder, base::UniqueFd owner, base::UniqueFd ready) {
  broker::AllowAllDescriptors();
  broker::Config config;
  config.unlisted = true;
  broker::ServiceOptions options;
  options.socket = folder + "/broker.sock";
  options.mode = 0600;
  options.until_unused = true;
  options.teardown = broker::kTeardown;
  options.owner = std::move(owner);
  options.awaited = [socket = options.socket] { return SomebodyKnows(socket); };
  options.answer = [](std::string_view what,
                      const broker::Snapshot& snapshot) -> absl::StatusOr<std::string> {
    if (what == "list") return broker::ToJson(snapshot);
    return absl::InvalidArgumentError("a program's own broker knows 'list' and 'trace' alone");
  };
  absl::StatusOr<std::unique_ptr<broker::Service>> service =
      broker::Service::Create(config, std::move(options));
  if (!service.ok()) {
    const std::string why(service.status().message());
    [[maybe_unused]] const ssize_t written = write(ready.get(), why.data(), why.size());
  } else {
    const char ok = '\0';
    [[maybe_unused]] const ssize_t written = write(ready.get(), &ok, 1);
    ready.Reset();
    (*service)->Run().IgnoreError();
  }
  service = absl::UnavailableError("");  // the socket's file goes
  unlink((folder + "/broker.sock.lock").c_str());
  rmdir(folder.c_str());
}

}  // namespace

absl::StatusOr<std::string> StartPrivateBroker() {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string folder, NewFolder());
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe2");
  base::UniqueFd read_end(pipe_fds[0]), write_end(pipe_fds[1]);
  base::UniqueFd owner(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!owner) return absl::ErrnoToStatus(errno, "pidfd_open");

  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork");
  if (child == 0) {
    // Forks twice, so that the program does not find a child that it did not start.
    if (fork() == 0) {
      // Moves the descriptors to fixed numbers, which are kept when all others are closed. Goes through temporary numbers, since each
      // may occupy the other's target.
      const int ready = fcntl(write_end.get(), F_DUPFD, 5), pidfd = fcntl(owner.get(), F_DUPFD, 5);
      base::UniqueFd kept_ready(dup2(ready, 4)), kept_owner(dup2(pidfd, 3));
      write_end.Release(), owner.Release(), read_end.Release();
      setsid();
      if (chdir("/") == 0) {
        const int null = open("/dev/null", O_RDWR);
        for (const int fd : {0, 1, 2}) dup2(null, fd);
        closefrom(5);
        fcntl(3, F_SETFD, FD_CLOEXEC);
        fcntl(4, F_SETFD, FD_CLOEXEC);
        Serve(folder, std::move(kept_owner), std::move(kept_ready));
      }
    }
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  write_end.Reset();
  std::string answer;
  static_cast<void>(base::ReadAll(read_end.get(), SIZE_MAX, &answer));
  if (answer == std::string(1, '\0')) return folder + "/broker.sock";
  rmdir(folder.c_str());
  return absl::UnavailableError(absl::StrCat("a broker for the program does not start: ",
                                             answer.empty() ? "it ended" : answer));
}

}  // namespace gpushare::cli
