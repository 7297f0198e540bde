// SPDX-License-Identifier: Apache-2.0
// The connection, against a broker that a thread plays. Whatever is waited for is an event, not a time.
#include "client/session.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/socket.h"
#include "tests/contract/failing_memory.h"
#include "tests/unit/client/fake_broker.h"
#include "tests/unit/ipc/child.h"

namespace gpushare::client {
namespace {

using Code = absl::StatusCode;

constexpr uint64_t kGiB = uint64_t{1} << 30;

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "gpushareXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    listener_ = std::make_unique<ipc::Listener>(*ipc::Listener::At(path(), 0600));
  }
  void TearDown() override {
    listener_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string path() const { return folder_ + "/broker"; }
  static base::Clock& clock() { return base::RealClock(); }

  absl::StatusOr<std::unique_ptr<Session>> Connect() {
    return Session::Connect(path(), {.tenant = "a", .program = "test", .spec = "compute=30%"},
                            clock(), {});
  }

  // ---- The broker's thread.
  base::UniqueFd Accept() {
    ipc::AwaitReadable(std::array<int, 1>{listener_->fd()}, clock(), kNever);
    return *listener_->Accept();
  }
  static ipc::Message Next(int fd) {
    return *ipc::Decode(ipc::ReceiveBefore(fd, clock(), kNever)->packet);
  }
  static bool AtItsEnd(int fd) {
    return ipc::ReceiveBefore(fd, clock(), kNever)->what == ipc::Received::kEnd;
  }
  static void Say(int fd, const ipc::Message& message, std::vector<int> fds = {}) {
    EXPECT_TRUE(ipc::Send(fd, *ipc::Encode(message), fds).ok());
  }
  static void Open(int fd, const BrokerPages& pages) {
    const auto open = std::get<ipc::OpenGpu>(Next(fd));
    Say(fd, ipc::GpuOpened{.uuid = open.uuid, .spec = "compute=30%"},
        {pages.limits.fd.get(), pages.usage.fd.get(), pages.bell.fd()});
  }
  static void AwaitRing(const BrokerPages& pages) {
    ipc::AwaitReadable(std::array<int, 1>{pages.bell.fd()}, clock(), kNever);
    EXPECT_TRUE(pages.rung());
  }
  // Welcomes a process, and has its first GPU opened.
  base::UniqueFd Welcome(const BrokerPages& pages) {
    base::UniqueFd fd = Accept();
    Next(fd.get());
    Say(fd.get(), ipc::Welcome{.session = 1, .tenant = "a"});
    Open(fd.get(), pages);
    return fd;
  }

  std::string folder_;
  std::unique_ptr<ipc::Listener> listener_;
};

TEST_F(SessionTest, SaysWhoItIsAndIsWelcomed) {
  std::thread broker([this] {
    const base::UniqueFd fd = Accept();
    ipc::Hello hello = std::get<ipc::Hello>(Next(fd.get()));
    EXPECT_NE(std::exchange(hello.image, 0), 0u);
    EXPECT_EQ(hello, (ipc::Hello{.tenant = "a", .program = "test", .spec = "compute=30%"}));
    Say(fd.get(), ipc::Welcome{.session = 1, .tenant = "who you are"});
    EXPECT_TRUE(AtItsEnd(fd.get()));
  });
  {
    const auto session = Connect();
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ((*session)->tenant(), "who you are");
  }
  broker.join();
}

TEST_F(SessionTest, WithoutHostMemoryItsThreadWaitsForSome) {
  const BrokerPages pages, next;
  base::UniqueFd fd;
  std::thread broker([&] { fd = Welcome(pages); });
  auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->OpenGpu("GPU-0", kGiB, 100).ok());
  broker.join();
  const int before = work::FailingMemory::failed();
  {
    const work::FailingMemoryElsewhere fails;
    fd.Reset();
    while (work::FailingMemory::failed() == before) std::this_thread::yield();
    // It looks again, and finds no memory for that either.
    const int looked = work::FailingMemory::failed();
    while (work::FailingMemory::failed() == looked) std::this_thread::yield();
  }
  // Then it finds that the broker has gone, and dials the next one.
  fd = Accept();
  Next(fd.get());
  {
    const int dialed = work::FailingMemory::failed();
    const work::FailingMemoryElsewhere fails;
    Say(fd.get(), ipc::Welcome{.session = 2, .tenant = "a"});
    while (work::FailingMemory::failed() == dialed) std::this_thread::yield();
  }
  fd = Welcome(next);
  session->reset();
}

TEST_F(SessionTest, ARefusalIsItsError) {
  std::thread broker([this] {
    const base::UniqueFd fd = Accept();
    Next(fd.get());
    Say(fd.get(), ipc::Refusal{.code = 7, .message = "not you"});
  });
  EXPECT_EQ(Connect().status(), absl::PermissionDeniedError("not you"));
  broker.join();
}

TEST_F(SessionTest, WhereManyWaitItWaitsForItsTurn) {
  ASSERT_EQ(listen(listener_->fd(), 1), 0);
  std::vector<base::UniqueFd> before;
  for (auto fd = ipc::Connect(path()); fd.ok(); fd = ipc::Connect(path())) {
    before.push_back(*std::move(fd));
  }
  std::thread broker([&] {
    for (size_t i = 0; i < before.size(); ++i) Accept();
    const base::UniqueFd fd = Accept();
    Next(fd.get());
    Say(fd.get(), ipc::Refusal{.code = 7, .message = "now it is your turn"});
  });
  EXPECT_EQ(Connect().status(), absl::PermissionDeniedError("now it is your turn"));
  broker.join();
}

TEST_F(SessionTest, WhereThereIsNoBrokerThereIsNoSession) {
  listener_.reset();
  EXPECT_EQ(Connect().status().code(), Code::kUnavailable);
}

TEST_F(SessionTest, ABrokerThatEndsTheConnectionOrTalksNonsenseIsNone) {
  std::thread broker([this] {
    Accept();
    const base::UniqueFd second = Accept();
    Next(second.get());
    ASSERT_TRUE(ipc::Send(second.get(), std::string("\x63\0\2\0nonsense", 12)).ok());
    const base::UniqueFd another = Accept();
    Next(another.get());
    ASSERT_TRUE(ipc::Send(another.get(), std::string("\2\0\3\0of a later version", 22)).ok());
    const base::UniqueFd third = Accept();
    Next(third.get());
    Say(third.get(), ipc::Part{.more = 0, .text = ""});
  });
  EXPECT_EQ(Connect().status().code(), Code::kUnavailable);
  EXPECT_EQ(Connect().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Connect().status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(Connect().status().code(), Code::kInternal);
  broker.join();
}

TEST_F(SessionTest, AGpuIsTwoPagesAndADoorbell) {
  const BrokerPages pages;
  base::UniqueFd connection;
  std::thread broker([&] { connection = Welcome(pages); });
  const auto session = Connect();
  ASSERT_TRUE(session.ok()) << session.status();
  const auto gpu = (*session)->OpenGpu("GPU-1", 8 * kGiB, 132);
  broker.join();
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  EXPECT_EQ((*gpu)->spec(), "compute=30%");
  EXPECT_EQ(*(*session)->OpenGpu("GPU-1", 8 * kGiB, 132), *gpu);
  EXPECT_FALSE((*gpu)->Tell({.wanted = Micros(1)}, clock().Now()).open);
  AwaitRing(pages);
  // Its thread tells the engine of what is granted.
  std::atomic<uint32_t> told{0};
  (*gpu)->SetOnTime([&] {
    told.store(1);
    clock().Wake(told, 1);
  });
  pages.said().time_granted_ns = 1'000'000;
  pages.Wake();
  while (told.load() == 0) clock().Wait(told, 0, kNever, Nanos(0));
  EXPECT_TRUE((*gpu)->Tell({.wanted = Micros(1)}, clock().Now()).open);
  (*gpu)->SetOnTime(nullptr);
}

TEST_F(SessionTest, DescriptorsThatAreNotThoseAreRefused) {
  const BrokerPages pages;
  const int limits = pages.limits.fd.get(), usage = pages.usage.fd.get(), bell = pages.bell.fd();
  const std::vector<std::vector<int>> wrong = {
      {}, {limits, usage}, {usage, limits, bell}, {limits, usage, limits}, {limits, limits, bell}};
  base::UniqueFd fd;
  std::thread broker([&] {
    fd = Accept();
    Next(fd.get());
    Say(fd.get(), ipc::Welcome{.session = 1, .tenant = "a"});
    for (const std::vector<int>& fds : wrong) {
      const auto open = std::get<ipc::OpenGpu>(Next(fd.get()));
      Say(fd.get(), ipc::GpuOpened{.uuid = open.uuid, .spec = ""}, fds);
    }
    Next(fd.get());
    Say(fd.get(), ipc::GpuOpened{.uuid = "another", .spec = ""}, {limits, usage, bell});
    Open(fd.get(), pages);
  });
  const auto session = Connect();
  ASSERT_TRUE(session.ok());
  for (size_t i = 0; i <= wrong.size(); ++i) {
    EXPECT_FALSE((*session)->OpenGpu("GPU-1", kGiB, 132).ok()) << i;
  }
  EXPECT_TRUE((*session)->OpenGpu("GPU-1", kGiB, 132).ok());
  broker.join();
}

TEST_F(SessionTest, ANewBrokerGetsToKnowWhatTheOldOneKnew) {
  const BrokerPages first, second;
  const auto account = *quota::Account::Create(0);
  std::promise<void> held;
  std::thread broker([&] {
    base::UniqueFd fd = Welcome(first);
    AwaitRing(first);
    first.Answer(first.used().memory_wanted.load());
    held.get_future().wait();
    // Dies, and another takes its place.
    fd.Reset();
    fd = Welcome(second);
    second.said().memory_limit = kGiB;
    AwaitRing(second);
    EXPECT_EQ(second.used().memory_wanted.load(), kGiB / 4);
    second.Answer(kGiB / 4);
    EXPECT_TRUE(AtItsEnd(fd.get()));
  });
  first.said().memory_limit = kGiB;
  {
    const auto session = Connect();
    ASSERT_TRUE(session.ok());
    const auto gpu = (*session)->OpenGpu("GPU-1", kGiB, 132);
    ASSERT_TRUE(gpu.ok());
    std::atomic<uint32_t> told{0};
    (*gpu)->SetOnTime([&] {
      told.fetch_add(1);
      clock().Wake(told, 1);
    });
    HolderOfOne holder(*account);
    (*gpu)->SetHolder(&holder);
    ASSERT_TRUE((*gpu)->GetRoom(*account, kGiB / 4, kNever));
    EXPECT_TRUE(account->Reserve(kGiB / 4));
    held.set_value();
    // Told of the loss, of the return, and what the new page says at first.
    while (second.used().memory_asked.load() == 0 || account->limit() != kGiB / 4 ||
           second.said().memory_answered.load() == 0) {
      const uint32_t seen = told.load();
      clock().Wait(told, seen, clock().Now() + Millis(1), Nanos(0));
    }
    (*gpu)->SetOnTime(nullptr);
    (*gpu)->SetHolder(nullptr);
  }
  account->Cancel(kGiB / 4);
  broker.join();
}

TEST_F(SessionTest, AChildDoesNotHoldItsParentsConnection) {
  const BrokerPages pages;
  base::UniqueFd fd;
  std::thread broker([&] { fd = Welcome(pages); });
  auto session = Connect();
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->OpenGpu("GPU-1", kGiB, 132).ok());
  broker.join();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  base::UniqueFd held(ends[0]), hold(ends[1]);
  ipc::Child child([&] {
    hold.Reset();
    const bool refused =
        (*session)->OpenGpu("GPU-2", kGiB, 132).status().code() == Code::kFailedPrecondition;
    session->reset();
    char byte;
    return read(held.get(), &byte, 1) == 0 && refused;
  });
  session->reset();
  EXPECT_TRUE(AtItsEnd(fd.get()));  // while the child lives
  hold.Reset();
  EXPECT_TRUE(child.Wait());
}

// As a child has it that was made by a call of which nobody is told.
TEST_F(SessionTest, ItsEndIsSeenAlthoughAnotherHoldsItsConnection) {
  const BrokerPages pages;
  base::UniqueFd fd, held;
  std::thread broker([&] { fd = Welcome(pages); });
  auto session = Connect();
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->OpenGpu("GPU-1", kGiB, 132).ok());
  broker.join();
  for (int each = 0; each < 1024 && !held; ++each) {
    sockaddr_un peer = {};
    socklen_t length = sizeof peer;
    if (getpeername(each, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.sun_path == path()) held = Duplicate(each);
  }
  ASSERT_TRUE(held);
  session->reset();
  const auto got = ipc::ReceiveBefore(fd.get(), clock(), clock().Now() + Seconds(5));
  EXPECT_TRUE(got.ok() && got->what == ipc::Received::kEnd);
}

// The answer to a question that the operator's word has crossed is that word.
TEST_F(SessionTest, WhoIsEvictedWhileItAsksStaysEvicted) {
  const BrokerPages pages;
  pages.said().memory_limit = kGiB;
  pages.said().guarantee_ppm = 500'000;
  std::thread broker([&] {
    const base::UniqueFd fd = Welcome(pages);
    Next(fd.get());
    Say(fd.get(), ipc::Refusal{.code = static_cast<uint32_t>(Code::kAborted), .message = "no"});
  });
  const auto session = Connect();
  ASSERT_TRUE(session.ok());
  const auto gpu = (*session)->OpenGpu("GPU-1", kGiB, 132);
  ASSERT_TRUE(gpu.ok());
  EXPECT_EQ((*session)->OpenGpu("GPU-2", kGiB, 132).status().code(), Code::kAborted);
  broker.join();
  std::atomic<uint32_t> told{0};
  (*gpu)->SetOnTime([&] {
    told.fetch_add(1);
    clock().Wake(told, 1);
  });
  while ((*gpu)->Left() != 0) {  // until it is lost
    const uint32_t seen = told.load();
    clock().Wait(told, seen, clock().Now() + Millis(1), Nanos(0));
  }
  (*gpu)->SetOnTime(nullptr);
  // Without a broker it would go on at its guarantee.
  EXPECT_FALSE((*gpu)->Tell({.wanted = Micros(1)}, After(clock().Now(), Seconds(1))).open);
}

}  // namespace
}  // namespace gpushare::client
