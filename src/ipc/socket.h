// SPDX-License-Identifier: Apache-2.0
// Sockets on which a packet comes whole, with the descriptors that were sent with it, or not at all.
//
//   broker:   GPUSHARE_ASSIGN_OR_RETURN(Listener listener, Listener::At(path, 0666));
//             GPUSHARE_ASSIGN_OR_RETURN(UniqueFd peer, listener.Accept());      // when it can be read
//             GPUSHARE_ASSIGN_OR_RETURN(const Peer who, PeerOf(peer.get()));
//   process:  GPUSHARE_ASSIGN_OR_RETURN(UniqueFd broker, ConnectBefore(path, clock, deadline, stopping));
//   both:     GPUSHARE_RETURN_IF_ERROR(Send(fd, packet, {limits, usage, bell}));
//             GPUSHARE_ASSIGN_OR_RETURN(Received got, Receive(fd));
//
// No call but the ...Before ones and AwaitReadable() ever blocks, none raises SIGPIPE, and no descriptor outlives an
// exec. Errors that a peer brings about are its own: end its connection.
// Threading: a descriptor is one thread's at a time.
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

// Where a broker is found. A path may be as long as the file system allows, its last name at most 80 bytes.
class Listener {
 public:
  // `mode`: of the socket's file, whatever the umask. What a dead broker has left at `path` is replaced.
  // AlreadyExists: a broker is there, or a file that is no socket. The broker that is there holds `path`.lock, which
  // stays when it ends.
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
  ~Listener();  // takes the socket's file away

  int fd() const { return socket_.get(); }
  // Unavailable: nobody is there, or who was has gone. ResourceExhausted: no descriptor is left.
  absl::StatusOr<base::UniqueFd> Accept() const;

 private:
  Listener() = default;

  std::string path_;  // empty: moved from
  base::UniqueFd lock_, socket_;
};

// Unavailable: nobody listens there. PermissionDenied: not for this user. ResourceExhausted: too many wait already.
absl::StatusOr<base::UniqueFd> Connect(const std::string& path);
// Waits for room while too many wait: anybody can bring that about, and a pause of the broker's does. Unavailable also:
// there is none by `deadline`, or `stopping` is no longer 0.
absl::StatusOr<base::UniqueFd> ConnectBefore(const std::string& path, base::Clock& clock,
                                             Time deadline, const std::atomic<uint32_t>& stopping);

// ResourceExhausted: the peer does not take what it was sent before. Unavailable: it has gone.
absl::Status Send(int fd, std::string_view packet, std::span<const int> fds = {});

struct Received {
  enum What {
    kPacket,
    kNothing,  // there is none now
    kEnd,      // nor ever will be: the peer has gone, or has sent an empty packet
  } what = kNothing;
  std::string packet;
  std::vector<base::UniqueFd> fds;
};
// The descriptors' numbers are above 2 (base/host_fd.h). InvalidArgument: a packet longer than kMostPacket, or with more
// than kMostFds descriptors; they are closed. ResourceExhausted: there is no number for them.
absl::StatusOr<Received> Receive(int fd);
// Waits for a packet or the end. DeadlineExceeded.
absl::StatusOr<Received> ReceiveBefore(int fd, base::Clock& clock, Time deadline);

// Until one of them can be read or is at its end. False: the deadline came first.
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

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_SOCKET_H_
