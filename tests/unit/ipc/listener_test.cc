// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "ipc/doorbell.h"
#include "ipc/socket.h"
#include "tests/unit/ipc/child.h"

namespace gpushare::ipc {
namespace {

using Code = absl::StatusCode;

class ListenerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "gpushareXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/broker"; }

  std::string folder_;
};

TEST_F(ListenerTest, TwoMeetAtAPath) {
  const auto listener = Listener::At(path(), 0600);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(listener->Accept().status().code(), Code::kUnavailable);
  const auto mine = Connect(path());
  ASSERT_TRUE(mine.ok()) << mine.status();
  const auto theirs = listener->Accept();
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  ASSERT_TRUE(Send(mine->get(), "hello").ok());
  EXPECT_EQ(Receive(theirs->get())->packet, "hello");
  for (const int fd : {listener->fd(), mine->get(), theirs->get()}) {
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
}

// Anybody can fill the backlog, and it fills up while a broker pauses.
TEST_F(ListenerTest, WhoFindsTooManyWaitingWaitsForRoom) {
  const auto listener = Listener::At(path(), 0600);
  ASSERT_TRUE(listener.ok());
  ASSERT_EQ(listen(listener->fd(), 1), 0);
  std::vector<base::UniqueFd> waiting;
  absl::StatusOr<base::UniqueFd> next = Connect(path());
  for (; next.ok() && waiting.size() < 100; next = Connect(path())) {
    waiting.push_back(*std::move(next));
  }
  ASSERT_EQ(next.status().code(), Code::kResourceExhausted) << next.status();
  base::Clock& clock = base::RealClock();
  std::atomic<uint32_t> stopping{0};
  EXPECT_EQ(ConnectBefore(path(), clock, clock.Now() + Millis(20), stopping).status().code(),
            Code::kUnavailable);
  std::thread room([&] { EXPECT_TRUE(listener->Accept().ok()); });
  const auto got = ConnectBefore(path(), clock, kNever, stopping);
  room.join();
  EXPECT_TRUE(got.ok()) << got.status();
  stopping = 1;
  EXPECT_EQ(ConnectBefore(path(), clock, kNever, stopping).status().code(), Code::kUnavailable);
  EXPECT_EQ(ConnectBefore(path() + "s", clock, kNever, stopping).status().code(),
            Code::kUnavailable);
}

TEST_F(ListenerTest, AsManyMayWaitAsTheMachineAllows) {
  int most = 0;
  std::ifstream("/proc/sys/net/core/somaxconn") >> most;
  if (most < 256) GTEST_SKIP() << "net.core.somaxconn is " << most;
  const auto listener = Listener::At(path(), 0600);
  ASSERT_TRUE(listener.ok());
  std::vector<base::UniqueFd> waiting;
  for (int i = 0; i < 200; ++i) {
    auto one = Connect(path());
    ASSERT_TRUE(one.ok()) << i << ": " << one.status();
    waiting.push_back(*std::move(one));
  }
}

// Output that a program writes to its closed standard streams must not arrive here.
TEST_F(ListenerTest, NothingIsUnderANumberThatAProgramMayHaveClosed) {
  const auto listener = Listener::At(path(), 0600);
  ASSERT_TRUE(listener.ok());
  Child child([&] {
    for (int fd = 0; fd <= STDERR_FILENO; ++fd) close(fd);
    const auto connected = Connect(path());
    const auto accepted = listener->Accept();
    const auto bell = Doorbell::Create();
    if (!connected.ok() || !accepted.ok() || !bell.ok()) return false;
    const std::array<int, 1> sent = {bell->fd()};
    if (!Send(connected->get(), "page", sent).ok()) return false;
    const auto got = Receive(accepted->get());
    if (!got.ok() || got->fds.size() != 1) return false;
    const int kept[] = {connected->get(), bell->fd(), got->fds[0].get()};
    for (const int fd : kept) {
      if (fd <= STDERR_FILENO || fcntl(fd, F_GETFD) != FD_CLOEXEC) return false;
    }
    for (int fd = 1; fd <= STDERR_FILENO; ++fd) {
      if (fcntl(fd, F_GETFD) >= 0)
        return false;  // 0 is the accepted connection, which only brokers have
    }
    return true;
  });
  EXPECT_TRUE(child.Wait());
}

TEST_F(ListenerTest, TheFileHasTheModeThatWasAskedFor) {
  const mode_t before = umask(077);
  {
    const auto listener = Listener::At(path(), 0666);
    ASSERT_TRUE(listener.ok());
    struct stat found;
    ASSERT_EQ(stat(path().c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, mode_t{0666});
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
  umask(before);
}

TEST_F(ListenerTest, ThereIsOneBrokerAtAPath) {
  auto listener = Listener::At(path(), 0600);
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(Listener::At(path(), 0600).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(Connect(path()).ok());  // the first one is still there
  { const Listener ended = *std::move(listener); }
  EXPECT_TRUE(Listener::At(path(), 0600).ok());
}

TEST_F(ListenerTest, WhatADeadBrokerLeftIsReplaced) {
  Child broker([&]() -> bool {
    const auto listener = Listener::At(path(), 0600);
    _exit(listener.ok() ? 0 : 1);  // does not take the socket away
  });
  ASSERT_TRUE(broker.Wait());
  ASSERT_TRUE(std::filesystem::exists(path()));
  EXPECT_EQ(Connect(path()).status().code(), Code::kUnavailable);
  const auto listener = Listener::At(path(), 0600);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(Connect(path()).ok());
}

// A program that does not know the lock.
TEST_F(ListenerTest, ASocketThatSomebodyAnswersIsNotReplaced) {
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {
    const base::UniqueFd other(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path().c_str(), sizeof(name.sun_path) - 1);
    ASSERT_EQ(bind(other.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
    ASSERT_EQ(listen(other.get(), 1), 0);
    EXPECT_EQ(Listener::At(path(), 0600).status().code(), Code::kAlreadyExists);
    EXPECT_TRUE(std::filesystem::exists(path()));
    std::filesystem::remove(path());
  }
}

TEST_F(ListenerTest, AFileThatIsNoSocketIsNotReplaced) {
  const base::UniqueFd file(open(path().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  EXPECT_EQ(Listener::At(path(), 0600).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(ListenerTest, APathMayBeLongerThanASocketsName) {
  const std::string folder = folder_ + "/" + std::string(150, 'd');
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  const auto listener = Listener::At(folder + "/broker", 0600);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(Connect(folder + "/broker").ok());
  EXPECT_EQ(Listener::At(folder + "/" + std::string(81, 'b'), 0600).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Listener::At("", 0600).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Connect(std::string("a\0b", 3)).status().code(), Code::kInvalidArgument);
}

TEST_F(ListenerTest, WhereNobodyIsNobodyIsConnectedTo) {
  EXPECT_EQ(Connect(path()).status().code(), Code::kUnavailable);
  EXPECT_FALSE(Listener::At(folder_ + "/missing/broker", 0600).ok());
}

TEST_F(ListenerTest, AProcessThatEndsIsSeenToThoughItsChildHoldsTheConnection) {
  const auto listener = Listener::At(path(), 0600);
  ASSERT_TRUE(listener.ok());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  base::UniqueFd held(ends[0]), hold(ends[1]);
  Child process([&] {
    const auto mine = Connect(path());
    if (!mine.ok() || !Send(mine->get(), "hello").ok()) return false;
    if (fork() == 0) {  // keeps the connection until the test closes the pipe
      hold.Reset();
      char byte;
      const ssize_t end = read(held.get(), &byte, 1);
      _exit(end == 0 ? 0 : 1);
    }
    // It is seen alive first: a pid alone does not identify a process that has ended.
    const auto seen = ReceiveBefore(mine->get(), base::RealClock(), kNever);
    return seen.ok() && seen->packet == "seen";
  });
  ASSERT_TRUE(AwaitReadable(std::array<int, 1>{listener->fd()}, base::RealClock(), kNever));
  const auto theirs = listener->Accept();
  ASSERT_TRUE(theirs.ok());
  const auto peer = PeerOf(theirs->get());
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->pid, process.pid());
  ASSERT_TRUE(peer->process) << "neither SO_PEERPIDFD nor pidfd_open";
  EXPECT_EQ(ReceiveBefore(theirs->get(), base::RealClock(), kNever)->packet, "hello");
  ASSERT_TRUE(Send(theirs->get(), "seen").ok());
  EXPECT_TRUE(AwaitReadable(std::array<int, 1>{peer->process.get()}, base::RealClock(), kNever));
  EXPECT_EQ(Receive(theirs->get())->what, Received::kNothing);  // its child has the connection
  EXPECT_TRUE(process.Wait());
  hold.Reset();
  EXPECT_EQ(ReceiveBefore(theirs->get(), base::RealClock(), kNever)->what, Received::kEnd);
}

}  // namespace
}  // namespace gpushare::ipc
