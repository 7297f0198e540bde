// SPDX-License-Identifier: Apache-2.0
// SOCK_SEQPACKET sockets: a packet arrives whole, with the descriptors that were sent with it, or not at all.
//
//   broker:   GPUSHARE_ASSIGN_OR_RETURN(Listener listener, Listener::At(path, 0666));
//             GPUSHARE_ASSIGN_OR_RETURN(UniqueFd peer, listener.Accept());      // when it can be read
//             GPUSHARE_ASSIGN_OR_RETURN(const Peer who, PeerOf(peer.get()));
//   process:  GPUSHARE_ASSIGN_OR_RETURN(UniqueFd broker, ConnectBefore(path, clock, deadline, stopping));
//   both:     GPUSHARE_RETURN_IF_ERROR(Send(fd, packet, {limits, usage, bell}));
//             GPUSHARE_ASSIGN_OR_RETURN(Received got, Receive(fd));
//
// Only the ...Before functions and AwaitReadable() block. None raises SIGPIPE, and all descriptors are closed on exec. On an
// error that a peer causes, end its connection.
// Threading: one thread at a time for each descriptor.
#ifndef GPUSHARE_IPC_SOCKET_H_
#define GPUSHARE_IPC_SOCKET_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace gpushare::ipc {

inline constexpr size_t kMostFds = 3;

// The socket at which a broker listens. Its path may be as long as the file system allows, its last component 80 bytes.
class Listener {
 public:
  // Gives the socket's file `mode`, whatever the umask, and replaces the socket of a dead broker. AlreadyExists: a broker
  // listens at `path`, or a file there is not a socket. A live broker holds a lock on `path`.lock; that file is never removed.
  static absl::StatusOr<Listener> At(const std::string& path, mode_t mode);
  Listener(Listener&& other) noexcept
      : path_(std::exchange(other.path_, {})),
        lock_(std::move(other.lock_)),
        socket_(std::move(other.socket_)) {}
  Listener& operator=(Listener&& other) noexcept {
    path_.swap(other.path_);
    std::swap(lock_, other.lock_);
    std::swap(socket_, other.socket_);
    return *this;
  }
  ~Listener();  // removes the socket's file

  int fd() const { return socket_.get(); }
  // Unavailable: no connection is waiting, or the peer has gone. ResourceExhausted: no descriptor is left.
  absl::StatusOr<base::UniqueFd> Accept() const;

 private:
  Listener() = default;

  std::string path_;  // empty after a move
  base::UniqueFd lock_, socket_;
};

// Unavailable: nobody listens at the path. PermissionDenied: this user may not connect. ResourceExhausted: the backlog is full.
absl::StatusOr<base::UniqueFd> Connect(const std::string& path);
// Connect(), waiting while the backlog is full: any user can fill it, and so does a pause of the broker. Unavailable also if
// there is no room by `deadline`, or when `stopping` becomes nonzero.
absl::StatusOr<base::UniqueFd> ConnectBefore(const std::string& path, base::Clock& clock,
                                             Time deadline, const std::atomic<uint32_t>& stopping);

// ResourceExhausted: the socket's buffer is full, since the peer does not receive. Unavailable: the peer has gone.
absl::Status Send(int fd, std::string_view packet, std::span<const int> fds = {});

struct Received {
  enum What {
    kPacket,
    kNothing,  // no packet is waiting
    kEnd,      // no packet will come: the peer has gone, or has sent an empty one
  } what = kNothing;
  std::string packet;
  std::vector<base::UniqueFd> fds;
};
// Received descriptors have numbers above 2 (base/host_fd.h). InvalidArgument: the packet is longer than kMostPacket or has
// more than kMostFds descriptors, which are closed. ResourceExhausted: no descriptor number is left.
absl::StatusOr<Received> Receive(int fd);
// Receive(), waiting for a packet or the end of the connection. DeadlineExceeded: neither came by `deadline`.
absl::StatusOr<Received> ReceiveBefore(int fd, base::Clock& clock, Time deadline);

// Waits until one of `fds` can be read or is at its end. False: `deadline` passed first.
bool AwaitReadable(std::span<const int> fds, base::Clock& clock, Time deadline);

// Who is at the other end, by the kernel's word.
struct Peer {
  pid_t pid = 0;  // as this PID namespace has it; 0: it is not visible here
  uid_t uid = 0;
  gid_t gid = 0;
  base::UniqueFd
      process;  // readable when it has ended; none where neither the kernel nor the number gives one
};
absl::StatusOr<Peer> PeerOf(int fd);
// The groups that it is in beside its own; none where the kernel does not tell.
std::vector<gid_t> GroupsOfPeer(int fd);

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_SOCKET_H_
