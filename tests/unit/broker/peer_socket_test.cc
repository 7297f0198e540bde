// SPDX-License-Identifier: Apache-2.0
// A peer that sends descriptors whose last close() waits: the broker waits for none of them, and none is left open.
#include "broker/peer_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/support/send_descriptors.h"

namespace gpushare::broker {
namespace {

using base::UniqueFd;

// How long the descriptors would make whoever closes them wait, and the time in which that must be done.
constexpr int kLinger = 60;
constexpr Nanos kAtOnce = Seconds(20);

std::pair<UniqueFd, UniqueFd> Pair() {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// A TCP connection whose other end reads nothing, so that its last close() waits.
struct Lingering {
  UniqueFd end, other;

  Lingering() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), raw, size), 0);
    EXPECT_EQ(getsockname(listener.get(), raw, &size), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    end.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(end.get(), raw, size), 0);
    other.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string much(1 << 16, 'x');
    while (send(end.get(), much.data(), much.size(), MSG_DONTWAIT) > 0) {
    }
    EXPECT_EQ(errno, EAGAIN);
    const linger waits{.l_onoff = 1, .l_linger = kLinger};
    EXPECT_EQ(setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &waits, sizeof(waits)), 0);
  }
};

// The last writer of the pipe is the packet.
void ExpectClosed(const UniqueFd& pipe) {
  base::Clock& clock = base::RealClock();
  EXPECT_TRUE(ipc::AwaitReadable(std::array<int, 1>{pipe.get()}, clock, clock.Now() + kAtOnce));
  char byte;
  EXPECT_EQ(read(pipe.get(), &byte, 1), 0);
}

class PeerSocketTest : public ::testing::Test {
 protected:
  PeerSocketTest() : began_(base::RealClock().Now()) {
    auto [ours, theirs] = Pair();
    ours_ = PeerSocket(std::move(ours));
    peer_ = std::move(theirs);
  }
  ~PeerSocketTest() override { EXPECT_LT(base::RealClock().Now() - began_, kAtOnce); }

  // Sends the only descriptor of a lingering connection, and those of a pipe, whose other end is returned.
  UniqueFd SendLingering(const UniqueFd& to, const std::string& packet, size_t copies = 1) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd writes(ends[1]);
    Lingering waits;
    std::vector<int> fds(copies, writes.get());
    fds.push_back(waits.end.get());
    EXPECT_TRUE(testing::SendWithDescriptors(to.get(), packet, fds));
    others_.push_back(std::move(waits.other));
    return UniqueFd(ends[0]);
  }

  const Time began_;
  PeerSocket ours_;
  UniqueFd peer_;
  std::vector<UniqueFd> others_;
};

TEST_F(PeerSocketTest, APacketWithDescriptorsIsRefusedAndClosedWithoutAWait) {
  for (const size_t copies : {1u, 3u, 200u}) {
    auto [ours, theirs] = Pair();
    PeerSocket socket(std::move(ours));
    const UniqueFd pipe = SendLingering(theirs, "hello", copies);
    EXPECT_EQ(socket.Receive().status().code(), absl::StatusCode::kInvalidArgument);
    socket.Reset();
    ExpectClosed(pipe);
    EXPECT_EQ(send(theirs.get(), "more", 4, MSG_NOSIGNAL), -1);
  }
}

TEST_F(PeerSocketTest, SoIsOneThatWasNeverReadWhateverIsBeforeIt) {
  ASSERT_EQ(send(peer_.get(), "first", 5, 0), 5);
  ASSERT_EQ(send(peer_.get(), "", 0, 0), 0);
  const UniqueFd pipe = SendLingering(peer_, ""), next = SendLingering(peer_, "next");
  peer_.Reset();
  ours_.Reset();
  ExpectClosed(pipe);
  ExpectClosed(next);
}

TEST_F(PeerSocketTest, OtherPacketsAndTheEndAreReceived) {
  ASSERT_EQ(send(peer_.get(), "one", 3, 0), 3);
  EXPECT_EQ(ours_.Receive()->packet, "one");
  EXPECT_EQ(ours_.Receive()->what, ipc::Received::kNothing);
  ASSERT_EQ(send(peer_.get(), "two", 3, 0), 3);
  peer_.Reset();
  EXPECT_EQ(ours_.Receive()->packet, "two");
  EXPECT_EQ(ours_.Receive()->what, ipc::Received::kEnd);
}

}  // namespace
}  // namespace gpushare::broker
