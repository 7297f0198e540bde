// SPDX-License-Identifier: Apache-2.0
#include "ipc/socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/host_fd.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "ipc/address.h"
#include "ipc/message.h"

#ifndef SO_PEERPIDFD  // Linux 6.5
#define SO_PEERPIDFD 77
#endif

namespace gpushare::ipc {
namespace {

// The room for so many descriptors and no more: CMSG_SPACE() is rounded up.
constexpr size_t kControl = CMSG_LEN(kMostFds * sizeof(int));
struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> bytes{};
};

constexpr Nanos kFirstRetry = Millis(1), kLongestRetry = Millis(10);

// False: there was no number left for one of them.
bool TakeFds(msghdr& header, std::vector<base::UniqueFd>& fds) {
  bool all = true;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      all &= static_cast<bool>(fds.emplace_back(base::ClearOfStdio(base::UniqueFd(fd))));
    }
  }
  return all;
}

bool PollUntil(std::span<pollfd> polled, base::Clock& clock, Time deadline) {
  for (;;) {
    timespec left{};
    const timespec* timeout = nullptr;
    if (deadline != kNever) {
      const int64_t ns = std::max<int64_t>(0, (deadline - clock.Now()).count());
      left.tv_sec = ns / 1'000'000'000;
      left.tv_nsec = ns % 1'000'000'000;
      timeout = &left;
    }
    const int ready = ppoll(polled.data(), polled.size(), timeout, nullptr);
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return true;  // the caller's own call will say what is wrong
  }
}

}  // namespace

absl::StatusOr<base::UniqueFd> Connect(const std::string& path) {
  GPUSHARE_ASSIGN_OR_RETURN(const Address address, Address::Of(path));
  base::UniqueFd fd = base::ClearOfStdio(
      base::UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!fd) return absl::ErrnoToStatus(errno, "socket");
  int result;
  while ((result = connect(fd.get(), address.get(), Address::kSize)) != 0 && errno == EINTR) {
  }
  if (result == 0) return fd;
  switch (errno) {
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat("no broker for this user at ", Quoted(path)));
    case EAGAIN:
      return absl::ResourceExhaustedError(
          absl::StrCat("too many wait for the broker at ", Quoted(path), " already"));
    default:
      return absl::UnavailableError(
          absl::StrCat("no broker at ", Quoted(path), ": ", std::strerror(errno)));
  }
}

absl::StatusOr<base::UniqueFd> ConnectBefore(const std::string& path, base::Clock& clock,
                                             Time deadline, const std::atomic<uint32_t>& stopping) {
  for (Nanos pause = kFirstRetry;; pause = std::min(2 * pause, kLongestRetry)) {
    absl::StatusOr<base::UniqueFd> fd = Connect(path);
    if (!absl::IsResourceExhausted(fd.status())) return fd;
    const Time now = clock.Now();
    if (stopping.load() != 0 || now >= deadline) {
      return absl::UnavailableError(fd.status().message());
    }
    clock.Wait(stopping, 0, std::min(deadline, After(now, pause)), Nanos(0));
  }
}

absl::Status Send(int fd, std::string_view packet, std::span<const int> fds) {
  if (packet.empty() || packet.size() > kMostPacket || fds.size() > kMostFds) {
    return absl::InvalidArgumentError("a packet is empty or too long, or has too many descriptors");
  }
  iovec data{const_cast<char*>(packet.data()), packet.size()};
  Control control;
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  for (;;) {
    const ssize_t sent = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(packet.size())) return absl::OkStatus();
    if (sent >= 0) return absl::InternalError("half a packet was sent");
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
      case ENOBUFS:
      case ENOMEM:
      case ETOOMANYREFS:
        return absl::ResourceExhaustedError("the peer does not take what it was sent before");
      case EPIPE:
      case ECONNRESET:
      case ENOTCONN:
      case ECONNREFUSED:
        return absl::UnavailableError("the peer has gone");
      default:
        return absl::ErrnoToStatus(errno, "sendmsg");
    }
  }
}

absl::StatusOr<Received> Receive(int fd) {
  Received received;
  received.packet.resize(kMostPacket);
  iovec data{received.packet.data(), received.packet.size()};
  Control control;
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = kControl;
  ssize_t length;
  while ((length = recvmsg(fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0 && errno == EINTR) {
  }
  if (length < 0) {
    received.packet.clear();
    if (errno == EAGAIN) return received;
    if (errno != ECONNRESET && errno != ENOTCONN) return absl::ErrnoToStatus(errno, "recvmsg");
    received.what = Received::kEnd;
    return received;
  }
  const bool all = TakeFds(header, received.fds);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return absl::InvalidArgumentError("a packet that is too long, or has too many descriptors");
  }
  if (!all) return absl::ResourceExhaustedError("no descriptor is left for what was sent");
  received.packet.resize(static_cast<size_t>(length));
  received.what = length == 0 ? Received::kEnd : Received::kPacket;
  if (length == 0) received.fds.clear();
  return received;
}

bool AwaitReadable(std::span<const int> fds, base::Clock& clock, Time deadline) {
  std::vector<pollfd> polled;
  polled.reserve(fds.size());
  for (const int fd : fds) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  if (clock.LookEvery() == Nanos(0)) return PollUntil(polled, clock, deadline);
  // Whoever sends may have to have the turn first.
  for (;;) {
    if (poll(polled.data(), polled.size(), 0) > 0) return true;
    const Time now = clock.Now();
    if (now >= deadline) return false;
    clock.SleepUntil(std::min(deadline, After(now, clock.LookEvery())));
  }
}

absl::StatusOr<Received> ReceiveBefore(int fd, base::Clock& clock, Time deadline) {
  for (;;) {
    absl::StatusOr<Received> received = Receive(fd);
    if (!received.ok() || received->what != Received::kNothing) return received;
    if (!AwaitReadable({&fd, 1}, clock, deadline)) {
      return absl::DeadlineExceededError("the peer does not answer");
    }
  }
}

absl::StatusOr<Peer> PeerOf(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return absl::ErrnoToStatus(errno, "SO_PEERCRED");
  }
  Peer peer;
  peer.pid = credentials.pid, peer.uid = credentials.uid, peer.gid = credentials.gid;
  int process = -1;
  size = sizeof(process);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &size) != 0) process = -1;
  // By its number it may be a later process's; whoever connected is alive then, or its connection at its end.
  if (process < 0 && peer.pid > 0) {
    process = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
  }
  peer.process.Reset(process);
  return peer;
}

std::vector<gid_t> GroupsOfPeer(int fd) {
  socklen_t size = 0;
  // With too little room it tells how much is needed. The groups are those of the time when the peer connected, so they do not change.
  if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, nullptr, &size) != 0 && errno != ERANGE) return {};
  std::vector<gid_t> groups(size / sizeof(gid_t));
  if (groups.empty() || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) {
    return {};
  }
  return groups;
}

}  // namespace gpushare::ipc
