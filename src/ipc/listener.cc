// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "ipc/address.h"
#include "ipc/socket.h"

namespace gpushare::ipc {
namespace {

// As many as the machine allows. Who finds it full tries again (ConnectBefore()).
constexpr int kBacklog = SOMAXCONN;

absl::Status Taken(const std::string& path, const char* why) {
  return absl::AlreadyExistsError(absl::StrCat(Quoted(path), ": ", why));
}

// Held while a broker lives, by whatever death it ends.
absl::StatusOr<base::UniqueFd> LockOf(const std::string& path) {
  const std::string name = path + ".lock";
  base::UniqueFd lock(open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return absl::ErrnoToStatus(errno, Quoted(name));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) return Taken(path, "another broker is there");
  return absl::ErrnoToStatus(errno, Quoted(name));
}

// With the lock: what is there is nobody's, unless somebody answers who does not know of locks.
absl::Status RemoveStale(const std::string& path) {
  struct stat found;
  if (lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? absl::OkStatus() : absl::ErrnoToStatus(errno, Quoted(path));
  }
  if (!S_ISSOCK(found.st_mode)) return Taken(path, "it is there, and no socket");
  // A socket of another kind answers EPROTOTYPE, which is somebody too.
  base::UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return absl::ErrnoToStatus(errno, "socket");
  GPUSHARE_ASSIGN_OR_RETURN(const Address address, Address::Of(path));
  if (connect(probe.get(), address.get(), Address::kSize) == 0 || errno != ECONNREFUSED) {
    return Taken(path, "somebody listens there");
  }
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, Quoted(path));
}

}  // namespace

absl::StatusOr<Listener> Listener::At(const std::string& path, mode_t mode) {
  GPUSHARE_ASSIGN_OR_RETURN(const Address address, Address::Of(path));
  GPUSHARE_ASSIGN_OR_RETURN(base::UniqueFd lock, LockOf(path));
  GPUSHARE_RETURN_IF_ERROR(RemoveStale(path));
  base::UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return absl::ErrnoToStatus(errno, "socket");
  // The file is made with the socket's mode less the umask, so it is never too open; nobody can connect before listen().
  fchmod(fd.get(), mode);
  if (bind(fd.get(), address.get(), Address::kSize) != 0) {
    return absl::ErrnoToStatus(errno, Quoted(path));
  }
  Listener listener;  // from here on the file is taken away
  listener.path_ = path;
  listener.lock_ = std::move(lock);
  listener.socket_ = std::move(fd);
  if (chmod(path.c_str(), mode) != 0 || listen(listener.fd(), kBacklog) != 0) {
    return absl::ErrnoToStatus(errno, Quoted(path));
  }
  return listener;
}

Listener::~Listener() {
  if (!path_.empty()) unlink(path_.c_str());
}

absl::StatusOr<base::UniqueFd> Listener::Accept() const {
  base::UniqueFd peer(accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (peer) return peer;
  switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return absl::ResourceExhaustedError("no descriptor is left for a connection");
    default:  // EAGAIN, EINTR, and what befell a connection that is no more
      return absl::UnavailableError("nobody connects");
  }
}

}  // namespace gpushare::ipc
