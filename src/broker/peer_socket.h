// SPDX-License-Identifier: Apache-2.0
// The broker's end of a connection, whose peer may send descriptors although the broker takes none.
//
//   PeerSocket socket(*std::move(accepted));
//   absl::StatusOr<ipc::Received> got = socket.Receive();
//
// Whoever closes a file last may have to wait for it: a TCP socket with SO_LINGER waits for its peer. A packet's descriptors are
// closed by whoever reads the packet without taking them, or closes the socket with the packet in it. So a packet that has any
// stays unread, and a socket with such a packet is closed by a thread that ends: the kernel lets that one wait for nothing.
//
// Threading: like a descriptor.
#ifndef GPUSHARE_BROKER_PEER_SOCKET_H_
#define GPUSHARE_BROKER_PEER_SOCKET_H_

#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "ipc/socket.h"

namespace gpushare::broker {

class PeerSocket {
 public:
  PeerSocket() = default;
  explicit PeerSocket(base::UniqueFd fd) : fd_(std::move(fd)) {}
  PeerSocket(PeerSocket&&) noexcept = default;
  PeerSocket& operator=(PeerSocket&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::move(other.fd_);
    }
    return *this;
  }
  ~PeerSocket() { Reset(); }

  int get() const { return fd_.get(); }
  // Ends the connection, and does not wait for anything.
  void Reset();
  // ipc::Receive() without descriptors. InvalidArgument if the packet has any; then Reset() is all that is left to do.
  absl::StatusOr<ipc::Received> Receive() const;

 private:
  base::UniqueFd fd_;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_PEER_SOCKET_H_
