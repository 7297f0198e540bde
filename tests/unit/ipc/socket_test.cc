// SPDX-License-Identifier: Apache-2.0
#include "ipc/socket.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "ipc/message.h"
#include "tests/support/send_descriptors.h"
#include "tests/unit/ipc/child.h"

namespace gpushare::ipc {
namespace {

using Code = absl::StatusCode;

std::pair<base::UniqueFd, base::UniqueFd> Pair(int type = SOCK_SEQPACKET) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

int OpenDescriptors() {
  int open = 0;
  for (int fd = 0; fd < 256; ++fd) open += fcntl(fd, F_GETFD) >= 0;
  return open;
}

TEST(Socket, APacketComesWholeWithItsDescriptors) {
  const auto [a, b] = Pair();
  EXPECT_EQ(Receive(b.get())->what, Received::kNothing);
  const std::string packet(kMostPacket, 'x');
  const std::array<int, 3> fds = {0, 1, 2};
  ASSERT_TRUE(Send(a.get(), packet, fds).ok());
  ASSERT_TRUE(Send(a.get(), "second").ok());
  const auto first = Receive(b.get());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->what, Received::kPacket);
  EXPECT_EQ(first->packet, packet);
  ASSERT_EQ(first->fds.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    struct stat sent, came;
    ASSERT_EQ(fstat(fds[i], &sent), 0);
    ASSERT_EQ(fstat(first->fds[i].get(), &came), 0);
    EXPECT_EQ(sent.st_ino, came.st_ino);
    EXPECT_EQ(fcntl(first->fds[i].get(), F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(Receive(b.get())->packet, "second");
  EXPECT_EQ(Receive(b.get())->what, Received::kNothing);
}

TEST(Socket, TheEndIsSeenOnceEverythingIsRead) {
  auto [a, b] = Pair();
  ASSERT_TRUE(Send(a.get(), "last").ok());
  a.Reset();
  EXPECT_EQ(Receive(b.get())->packet, "last");
  EXPECT_EQ(Receive(b.get())->what, Received::kEnd);
  // With the default action of the signal, the process would be killed.
  struct sigaction before, now{};
  now.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &now, &before);
  EXPECT_EQ(Send(b.get(), "more").code(), Code::kUnavailable);
  sigaction(SIGPIPE, &before, nullptr);
}

TEST(Socket, APeerThatDoesNotReadHoldsUpNobody) {
  const auto [a, b] = Pair();
  absl::Status status;
  for (int i = 0; status.ok() && i < 100'000; ++i) {
    status = Send(a.get(), std::string(1000, 'x'));
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
}

TEST(Socket, WhatIsTooMuchIsRefusedAndClosed) {
  const auto [a, b] = Pair();
  EXPECT_FALSE(Send(a.get(), std::string(kMostPacket + 1, 'x')).ok());
  EXPECT_FALSE(Send(a.get(), "").ok());
  EXPECT_FALSE(Send(a.get(), "x", std::array<int, 4>{0, 0, 0, 0}).ok());
  const int open = OpenDescriptors();
  for (const size_t count : {4u, 5u, 200u}) {
    EXPECT_TRUE(testing::SendWithDescriptors(a.get(), "x", std::vector<int>(count, 0)));
    EXPECT_EQ(Receive(b.get()).status().code(), Code::kInvalidArgument) << count;
    EXPECT_EQ(OpenDescriptors(), open) << count;
  }
  EXPECT_TRUE(testing::SendWithDescriptors(a.get(), std::string(kMostPacket + 1, 'x'), {0, 1}));
  EXPECT_EQ(Receive(b.get()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(OpenDescriptors(), open);
  // An empty packet looks like the end, and the descriptors that came with it are closed.
  EXPECT_TRUE(testing::SendWithDescriptors(a.get(), "", {0, 1}));
  EXPECT_EQ(Receive(b.get())->what, Received::kEnd);
  EXPECT_EQ(OpenDescriptors(), open);
  // None of this affects the next packet.
  ASSERT_TRUE(Send(a.get(), "next").ok());
  EXPECT_EQ(Receive(b.get())->packet, "next");
}

TEST(Socket, ReceiveBeforeWaitsForAPacketOrTheDeadline) {
  base::Clock& clock = base::RealClock();
  auto [a, b] = Pair();
  EXPECT_EQ(ReceiveBefore(b.get(), clock, clock.Now() + Millis(1)).status().code(),
            Code::kDeadlineExceeded);
  Child child([fd = a.get()] {
    const auto question = ReceiveBefore(fd, base::RealClock(), kNever);
    return question.ok() && question->packet == "question" && Send(fd, "answer").ok();
  });
  a.Reset();
  ASSERT_TRUE(Send(b.get(), "question").ok());
  const auto answer = ReceiveBefore(b.get(), clock, kNever);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->packet, "answer");
  EXPECT_TRUE(child.Wait());
  EXPECT_EQ(ReceiveBefore(b.get(), clock, kNever)->what, Received::kEnd);
}

TEST(Socket, ThePeerIsWhomTheKernelSays) {
  const auto [a, b] = Pair();
  const auto peer = PeerOf(a.get());
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->pid, getpid());
  EXPECT_EQ(peer->uid, getuid());
  EXPECT_EQ(peer->gid, getgid());
  EXPECT_FALSE(PeerOf(STDERR_FILENO).ok());
}

TEST(Socket, ThePeersGroupsAreThoseThatItHadWhenItConnected) {
  std::vector<gid_t> groups(65536);
  groups.resize(static_cast<size_t>(getgroups(65536, groups.data())));
  const auto [a, b] = Pair();
  EXPECT_EQ(GroupsOfPeer(a.get()), groups);
  EXPECT_TRUE(GroupsOfPeer(STDERR_FILENO).empty());
  if (geteuid() != 0) GTEST_SKIP() << "only root may change its groups";
  Child child([] {
    const std::vector<gid_t> many = {5, 70000, 300};
    if (setgroups(many.size(), many.data()) != 0) return false;
    const auto [c, d] = Pair();
    const std::vector<gid_t> sorted = {5, 300, 70000};
    return GroupsOfPeer(c.get()) == sorted && setgroups(0, nullptr) == 0 &&
           GroupsOfPeer(c.get()) == sorted;
  });
  EXPECT_TRUE(child.Wait());
}

}  // namespace
}  // namespace gpushare::ipc
