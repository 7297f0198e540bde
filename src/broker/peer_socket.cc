// SPDX-License-Identifier: Apache-2.0
#include "broker/peer_socket.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"

#ifndef CLOSE_RANGE_UNSHARE  // Linux 5.9
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif

namespace gpushare::broker {
namespace {

// Looks at the next packet, and leaves it there. The result is recvmsg()'s.
ssize_t Peek(int fd, msghdr* header) {
  char byte;
  iovec data{&byte, 1};
  header->msg_iov = &data;
  header->msg_iovlen = 1;
  return recvmsg(fd, header, MSG_PEEK | MSG_DONTWAIT);
}

// Reads what is left in a socket that is shut down, up to a packet with descriptors. Whether there is one.
bool HoldsDescriptors(int fd) {
  const int yes = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) != 0) return true;
  for (;;) {
    // With room for the sender and no more, the kernel says that there were descriptors.
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> sender{};
    msghdr header{};
    header.msg_control = sender.data();
    header.msg_controllen = sender.size();
    // An empty packet looks like the end, which has no sender.
    if (Peek(fd, &header) < 0 || header.msg_controllen == 0) return false;
    if ((header.msg_flags & MSG_CTRUNC) != 0) return true;
    if (recv(fd, nullptr, 0, MSG_DONTWAIT) < 0) return false;
  }
}

// Gives the calling thread descriptors of its own, with the same numbers. Some containers permit only the first of the two calls.
bool OwnDescriptors() {
  return syscall(SYS_close_range, UINT_MAX, UINT_MAX, CLOSE_RANGE_UNSHARE) == 0 ||
         unshare(CLONE_FILES) == 0;
}

// The thread is the last to close what the socket holds, as it ends. Where it cannot have descriptors of its own, it waits.
void CloseAtTheEndOfAThread(base::UniqueFd fd) {
  enum Step { kBegun, kHasOwn, kHasNone, kClosed };
  const auto step = std::make_shared<std::atomic<int>>(kBegun);
  try {
    std::thread closes([step, raw = fd.get()] {
      const bool own = OwnDescriptors();
      step->store(own ? kHasOwn : kHasNone);
      step->notify_one();
      own ? step->wait(kHasOwn) : base::UniqueFd(raw).Reset();
    });
    closes.detach();
    step->wait(kBegun);
    if (step->load() == kHasNone) {
      static_cast<void>(fd.Release());
      return;
    }
    fd.Reset();
    step->store(kClosed);
    step->notify_one();
  } catch (const std::system_error&) {  // the host gives no more threads
  }
}

}  // namespace

void PeerSocket::Reset() {
  if (!fd_) return;
  shutdown(fd_.get(), SHUT_RDWR);  // nothing more comes
  if (HoldsDescriptors(fd_.get())) return CloseAtTheEndOfAThread(std::move(fd_));
  fd_.Reset();
}

absl::StatusOr<ipc::Received> PeerSocket::Receive() const {
  msghdr
      header{};  // without room for descriptors, of which the kernel then says that there were some
  if (Peek(fd_.get(), &header) >= 0 && (header.msg_flags & MSG_CTRUNC) != 0) {
    return absl::InvalidArgumentError("a packet with descriptors, of which the broker takes none");
  }
  return ipc::Receive(fd_.get());
}

}  // namespace gpushare::broker
