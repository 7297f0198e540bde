// SPDX-License-Identifier: Apache-2.0
// A service on its own thread, and clients that speak the protocol directly.
#include "broker/service.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/auditor.h"
#include "broker/json.h"
#include "ipc/doorbell.h"
#include "ipc/message.h"
#include "ipc/page.h"
#include "ipc/socket.h"

namespace gpushare::broker {
namespace {

constexpr uint64_t kGiB = 1ull << 30;
const char kGpu[] = "GPU-00000000-0000-0000-0000-000000000001";

// The client side of one process.
struct Peer {
  base::UniqueFd fd;
  ipc::Mapped<const ipc::LimitsPage> limits;
  ipc::Mapped<ipc::UsagePage> usage;
  std::unique_ptr<ipc::Doorbell> bell;
  uint64_t image = 0;

  absl::Status Send(const ipc::Message& message, std::span<const int> fds = {}) {
    const auto packet = ipc::Encode(message);
    return packet.ok() ? ipc::Send(fd.get(), *packet, fds) : packet.status();
  }
  absl::StatusOr<ipc::Received> Receive() {
    base::Clock& clock = base::RealClock();
    return ipc::ReceiveBefore(fd.get(), clock, clock.Now() + Seconds(20));
  }
  absl::StatusOr<ipc::Message> Call(const ipc::Message& message,
                                    std::vector<base::UniqueFd>* fds = nullptr) {
    if (const absl::Status sent = Send(message); !sent.ok()) return sent;
    auto got = Receive();
    if (!got.ok()) return got.status();
    if (got->what != ipc::Received::kPacket) return absl::UnavailableError("the end");
    if (fds != nullptr) *fds = std::move(got->fds);
    return ipc::Decode(got->packet);
  }
  absl::StatusOr<ipc::Message> Register(const std::string& tenant, const std::string& spec = "") {
    return Call(ipc::Hello{.tenant = tenant, .program = "test", .spec = spec, .image = image});
  }
  absl::StatusOr<ipc::Message> Open(uint64_t memory = 16 * kGiB) {
    std::vector<base::UniqueFd> fds;
    auto answer = Call(ipc::OpenGpu{.uuid = kGpu, .memory = memory, .sm_count = 132}, &fds);
    if (!answer.ok() || fds.size() != 3) return answer;
    limits = *ipc::MapLimits(fds[0].get());
    usage = *ipc::MapUsage(fds[1].get());
    bell = std::make_unique<ipc::Doorbell>(*ipc::Doorbell::Of(std::move(fds[2])));
    return answer;
  }
  // Asks for a grant of `bytes` in total, and waits for the answer.
  uint64_t Ask(uint64_t bytes) {
    usage->memory_wanted = bytes;
    const uint32_t number = ++usage->memory_asked;
    bell->Ring();
    base::Clock& clock = base::RealClock();
    const Time deadline = clock.Now() + Seconds(20);
    while (limits->memory_answered.load() != number && clock.Now() < deadline) {
      const uint32_t seen = limits->wake.load();
      if (limits->memory_answered.load() == number) break;
      clock.WaitShared(limits->wake, seen, clock.Now() + Millis(100));
    }
    EXPECT_EQ(limits->memory_answered.load(), number) << "no answer";
    return limits->memory_granted.load();
  }
};

TenantConfig Tenant(const std::string& name, const std::string& spec) {
  TenantConfig tenant;
  tenant.name = name;
  tenant.spec = spec;
  return tenant;
}
Config TwoTenants() {
  Config config;
  config.tenants = {Tenant("a", "memory=4GiB,compute=50%"), Tenant("b", "memory=8GiB,cap=30%")};
  return config;
}

const ipc::Change kReload{.what = "reload", .tenant = "", .gpu = "", .spec = ""};

class ServiceTest : public ::testing::Test {
 protected:
  ~ServiceTest() override { End(); }
  void Start(Config config, ServiceOptions options = {}) {
    folder_ = std::filesystem::temp_directory_path() /
              absl::StrCat("gpushare-service-", getpid(), "-", reinterpret_cast<uintptr_t>(this));
    std::filesystem::create_directory(folder_);
    options.socket = (folder_ / "broker.sock").string();
    path_ = options.socket;
    Begin(config, std::move(options));
  }
  // Starts a service with a file for its successor, which Again() starts.
  void StartThatIsRemembered(const Config& config, ServiceOptions options = {}) {
    options.remains = Books();
    Start(config, std::move(options));
  }
  // Starts a service that gets `outcome` when it reads its configuration, once go_on_ is set.
  void StartThatReads(const absl::StatusOr<Config>& outcome) {
    ServiceOptions options;
    options.reload = [this, outcome] {
      reads_.set_value();
      go_on_.get_future().wait();
      return outcome;
    };
    Start(TwoTenants(), std::move(options));
  }
  void AwaitReading(Peer& operates) {
    ASSERT_TRUE(operates.Send(kReload).ok());
    reads_.get_future().wait();
  }
  void Again(const Config& config) {
    Stop();
    ServiceOptions options;
    options.socket = path_;
    options.remains = Books();
    Begin(config, std::move(options));
  }
  std::string Books() const { return absl::StrCat("/tmp/gpushare-books-", getpid()); }
  void Begin(const Config& config, ServiceOptions options) {
    options.log = [this](std::string_view event, const auto& fields) {
      if (on_event_) on_event_(event);
      const std::lock_guard lock(said_lock_);
      std::string& said = said_.emplace_back(event);
      for (const auto& [name, value] : fields) absl::StrAppend(&said, " ", name, "=", value);
    };
    auto service = Service::Create(config, std::move(options));
    ASSERT_TRUE(service.ok()) << service.status();
    service_ = *std::move(service);
    thread_ = std::thread([this] { ended_ = service_->Run(); });
  }
  void Stop() {
    service_->Stop();
    if (thread_.joinable()) thread_.join();
    EXPECT_TRUE(ended_.ok()) << ended_;
    EXPECT_EQ(service_->CheckInvariants(), nullptr);
    service_.reset();
  }
  void End() {
    if (service_ != nullptr) Stop();
    std::filesystem::remove_all(folder_);
    std::filesystem::remove(Books());
  }
  std::vector<std::string> Said() {
    const std::lock_guard lock(said_lock_);
    return said_;
  }
  std::unique_ptr<Peer> Connect() {
    auto peer = std::make_unique<Peer>();
    auto fd = ipc::Connect(path_);
    EXPECT_TRUE(fd.ok()) << fd.status();
    if (fd.ok()) peer->fd = *std::move(fd);
    return peer;
  }
  // Waits until `ready` holds for the figures.
  template <typename Ready>
  bool Eventually(const Ready& ready) {
    base::Clock& clock = base::RealClock();
    for (const Time end = clock.Now() + Seconds(20); clock.Now() < end;) {
      if (ready(service_->TakeSnapshot())) return true;
      clock.SleepUntil(clock.Now() + Millis(2));
    }
    return false;
  }

  std::filesystem::path folder_;
  std::string path_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
  absl::Status ended_;
  std::function<void(std::string_view)>
      on_event_;                      // called by the service for each line of the log
  std::promise<void> reads_, go_on_;  // used by the service's thread that reads
  std::mutex said_lock_;
  std::vector<std::string> said_;  // the lines of the log
};

// A client that was installed before or after the broker.
TEST_F(ServiceTest, WhoSpeaksAnotherProtocolIsToldSo) {
  Start(TwoTenants());
  const auto peer = Connect();
  std::string packet = *ipc::Encode(ipc::Hello{.tenant = "old", .program = "test", .spec = ""});
  packet[2] = static_cast<char>(ipc::kProtocol + 1);
  ASSERT_TRUE(ipc::Send(peer->fd.get(), packet).ok());
  const auto got = peer->Receive();
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->what, ipc::Received::kPacket);
  const auto answer = ipc::Decode(got->packet);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const absl::Status refused = ipc::FromRefusal(std::get<ipc::Refusal>(*answer));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("different versions"));
  // Then the connection ends.
  const auto end = peer->Receive();
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->what, ipc::Received::kEnd);
}

TEST_F(ServiceTest, AProcessRegistersAndGetsItsShare) {
  Start(TwoTenants());
  auto peer = Connect();
  const auto welcome = peer->Register("a");
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(std::get<ipc::Welcome>(*welcome).tenant, "a");
  const auto opened = peer->Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(std::get<ipc::GpuOpened>(*opened).spec, "memory=4GiB");
  EXPECT_EQ(peer->limits->memory_granted.load(), 4 * kGiB);
  const Snapshot figures = service_->TakeSnapshot();
  ASSERT_EQ(figures.shares.size(), 1u);
  EXPECT_EQ(figures.shares[0].processes.at(0).pid, getpid());
}

// Looking up users' names may take long, and no other client has to wait for that.
TEST_F(ServiceTest, WhileTheConfigurationIsReadEverybodyIsServed) {
  Config larger = TwoTenants();
  larger.tenants[0].spec = "memory=6GiB,compute=50%";
  StartThatReads(larger);
  auto peer = Connect(), operates = Connect(), another = Connect();
  ASSERT_TRUE(peer->Register("a").ok() && peer->Open().ok());
  AwaitReading(*operates);
  EXPECT_EQ(peer->Ask(2 * kGiB), 4 * kGiB);
  EXPECT_EQ(peer->limits->memory_limit.load(), 4 * kGiB);
  const auto twice = another->Call(kReload);
  ASSERT_TRUE(twice.ok() && std::holds_alternative<ipc::Refusal>(*twice));
  EXPECT_EQ(std::get<ipc::Refusal>(*twice).code,
            static_cast<uint32_t>(absl::StatusCode::kUnavailable));
  go_on_.set_value();
  const auto got = operates->Receive();
  ASSERT_TRUE(got.ok()) << got.status();
  const auto answer = ipc::Decode(got->packet);
  EXPECT_TRUE(answer.ok() && std::holds_alternative<ipc::Part>(*answer));
  EXPECT_TRUE(
      Eventually([&](const Snapshot&) { return peer->limits->memory_limit.load() == 6 * kGiB; }));
}

// The file may have changed between two readings that overlap.
TEST_F(ServiceTest, WhatWasReadLaterStaysInForce) {
  StartThatReads(TwoTenants());
  auto peer = Connect(), operates = Connect();
  ASSERT_TRUE(peer->Register("a").ok() && peer->Open().ok());
  AwaitReading(*operates);
  Config newer = TwoTenants();
  newer.tenants[0].spec = "memory=6GiB,compute=50%";
  ASSERT_TRUE(service_->Apply(newer).ok());
  go_on_.set_value();
  const auto got = operates->Receive();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(peer->limits->memory_limit.load(), 6 * kGiB);
}

// It does no harm if the reading ends after the client has left, or when the broker ends.
TEST_F(ServiceTest, WhoAskedForTheConfigurationMayLeave) {
  StartThatReads(absl::InvalidArgumentError("it is wrong"));
  auto operates = Connect();
  AwaitReading(*operates);
  operates.reset();
  auto peer = Connect();
  EXPECT_TRUE(peer->Register("a").ok());  // by then it is known that the operator has left
  go_on_.set_value();
  EXPECT_TRUE(peer->Open().ok());
  // What came of it is in the log, whoever is there to hear it.
  EXPECT_TRUE(Eventually([&](const Snapshot&) {
    const std::vector<std::string> said = Said();
    const std::string wanted =
        absl::StrCat("change what=reload tenant= gpu= uid=", getuid(), " result=it is wrong");
    return std::find(said.begin(), said.end(), wanted) != said.end();
  }));
}

// The beat tells a process that the broker is alive.
TEST_F(ServiceTest, WhoCallsSeesTheBeatGoOn) {
  Start(TwoTenants());
  auto peer = Connect(), other = Connect();
  ASSERT_TRUE(peer->Register("a").ok() && peer->Open().ok());
  ASSERT_TRUE(other->Register("b").ok() && other->Open().ok());
  const uint32_t before = peer->limits->beat.load(), of_other = other->limits->beat.load();
  EXPECT_NE(before, 0u);
  peer->bell->Ring();
  EXPECT_TRUE(Eventually([&](const Snapshot&) { return peer->limits->beat.load() != before; }));
  EXPECT_EQ(other->limits->beat.load(), of_other);
}

TEST_F(ServiceTest, AGpuThatCannotBeHandedOverEndsTheSession) {
  Start(TwoTenants());
  auto peer = Connect();
  ASSERT_TRUE(peer->Register("a").ok());
  shutdown(peer->fd.get(), SHUT_RD);  // the answer with its pages is lost
  ASSERT_TRUE(peer->Send(ipc::OpenGpu{.uuid = kGpu, .memory = 16 * kGiB, .sm_count = 132}).ok());
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.sessions == 0; }));
  // The whole share is available to later processes.
  auto next = Connect();
  ASSERT_TRUE(next->Register("a").ok());
  ASSERT_TRUE(next->Open().ok());
  EXPECT_EQ(next->Ask(4 * kGiB), 4 * kGiB);
}

TEST_F(ServiceTest, WhoHasRegisteredIsToldItsOwnLimits) {
  Start(TwoTenants());
  const auto first = Connect(), other = Connect();
  EXPECT_TRUE(std::holds_alternative<ipc::Refusal>(*first->Call(ipc::Query{"own"})));
  ASSERT_TRUE(first->Register("a").ok() && first->Open().ok());
  ASSERT_TRUE(other->Register("b").ok() && other->Open().ok());
  const auto answer = first->Call(ipc::Query{"own"});
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto own = SnapshotFromJson(std::get<ipc::Part>(*answer).text);
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_EQ(own->shares.size(), 1u);
  EXPECT_EQ(own->shares[0].tenant, "a");
  EXPECT_EQ(own->shares[0].spec, "memory=4GiB,compute=50%");
  EXPECT_TRUE(own->shares[0].processes.empty() && own->gpus.empty());
}

TEST_F(ServiceTest, WhatCanBeNoGpuIsNone) {
  Config config;
  config.unlisted = true;
  Start(config);
  auto peer = Connect();
  ASSERT_TRUE(peer->Register("a").ok());
  const auto open = [&](const std::string& uuid, uint64_t memory, uint32_t sm_count = 132) {
    return peer->Call(ipc::OpenGpu{.uuid = uuid, .memory = memory, .sm_count = sm_count});
  };
  EXPECT_TRUE(std::holds_alternative<ipc::Refusal>(*open(kGpu, uint64_t{1} << 63)));
  EXPECT_TRUE(std::holds_alternative<ipc::Refusal>(*open(std::string(65, 'x'), kGiB)));
  // What the next broker would not believe spoils all that this one leaves to it.
  EXPECT_TRUE(std::holds_alternative<ipc::Refusal>(*open(kGpu, kGiB, UINT32_MAX)));
  // Names that are not in use any more make room.
  for (int i = 0; i < 100; ++i) {
    auto other = Connect();
    ASSERT_TRUE(other->Register(absl::StrCat("t", i)).ok());
    std::vector<base::UniqueFd> fds;
    const auto answer = other->Call(
        ipc::OpenGpu{.uuid = absl::StrCat("GPU-", i), .memory = kGiB, .sm_count = 1}, &fds);
    ASSERT_TRUE(answer.ok() && std::holds_alternative<ipc::GpuOpened>(*answer)) << i;
    (*ipc::MapUsage(fds[1].get()))->ended = 1;  // it holds nothing
    other.reset();
    ASSERT_TRUE(Eventually([](const Snapshot& now) { return now.sessions == 1; }));
  }
}

TEST_F(ServiceTest, ProcessesOfATenantShareItsQuota) {
  Start(TwoTenants());
  auto one = Connect(), two = Connect();
  for (Peer* peer : {one.get(), two.get()}) {
    ASSERT_TRUE(peer->Register("a").ok());
    ASSERT_TRUE(peer->Open().ok());
  }
  one->usage->memory_charged = kGiB;
  std::thread answers([&] {  // as its session would do
    base::Clock& clock = base::RealClock();
    while (one->limits->memory_recall.load() == 0) {
      clock.WaitShared(one->limits->wake, one->limits->wake.load(), clock.Now() + Millis(50));
    }
    one->usage->memory_kept = kGiB;
    one->usage->memory_recalled = one->limits->memory_recall.load();
    one->bell->Ring();
  });
  EXPECT_GE(two->Ask(3 * kGiB), 3 * kGiB);
  answers.join();
  EXPECT_EQ(one->limits->memory_granted.load() + two->limits->memory_granted.load(), 4 * kGiB);
}

TEST_F(ServiceTest, WhatCannotBeIsRefusedAndSaid) {
  Start(TwoTenants());
  const auto code = [](const absl::StatusOr<ipc::Message>& answer) {
    return answer.ok() && std::holds_alternative<ipc::Refusal>(*answer)
               ? static_cast<absl::StatusCode>(std::get<ipc::Refusal>(*answer).code)
               : absl::StatusCode::kOk;
  };
  auto peer = Connect();
  EXPECT_EQ(code(peer->Open()), absl::StatusCode::kInvalidArgument) << "not registered";
  EXPECT_EQ(code(peer->Register("c")), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(peer->Register("")), absl::StatusCode::kPermissionDenied);
  ASSERT_TRUE(peer->Register("a").ok());
  EXPECT_EQ(code(peer->Register("a")), absl::StatusCode::kInvalidArgument) << "twice";
  EXPECT_EQ(code(peer->Open(kGiB)), absl::StatusCode::kResourceExhausted) << "4 GiB of 1";
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.refused == 5; }));
}

TEST_F(ServiceTest, UnlistedTenantsAreTheirMakers) {
  Config config;
  config.unlisted = true;
  Start(config);
  auto peer = Connect();
  ASSERT_TRUE(peer->Register("mine", "memory=2GiB,cap=10%").ok());
  ASSERT_TRUE(peer->Open().ok());
  EXPECT_EQ(peer->limits->memory_granted.load(), 2 * kGiB);
  auto other = Connect();
  ASSERT_TRUE(other->Register("mine", "memory=9GiB").ok())
      << "it joins: its own words count for nothing";
  ASSERT_TRUE(other->Open().ok());
  EXPECT_EQ(other->limits->memory_limit.load(), 2 * kGiB);
}

// Names for unnamed processes skip those in use, so nobody can block a process by taking its next name.
TEST_F(ServiceTest, WhoHasNoNameGetsAFreeOne) {
  Config config;
  config.unlisted = true;
  config.tenants = {Tenant("process-3", "")};
  Start(config);
  auto squatter = Connect(), unnamed = Connect();
  ASSERT_TRUE(squatter->Register("process-2").ok());
  const auto welcome = unnamed->Register("");
  ASSERT_TRUE(welcome.ok() && std::holds_alternative<ipc::Welcome>(*welcome));
  EXPECT_EQ(std::get<ipc::Welcome>(*welcome).tenant, "process-4");
}

constexpr char kVictimsSocket[] = "GPUSHARE_TEST_VICTIMS_SOCKET";

// A child process that runs the given test with the broker of `socket`. The destructor kills it, however the test
// ends. It is not only forked, since a child of a process with several threads may find a lock that is never
// released.
class VictimProcess {
 public:
  VictimProcess(const std::string& socket, const std::string& test) {
    std::string program = "/proc/self/exe", filter = "--gtest_filter=Victim.DISABLED_" + test,
                all = "--gtest_also_run_disabled_tests", quiet = "--gtest_brief=1";
    char* const arguments[] = {program.data(), filter.data(), all.data(), quiet.data(), nullptr};
    EXPECT_EQ(setenv(kVictimsSocket, socket.c_str(), 1), 0);
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environ), 0);
  }
  ~VictimProcess() { Kill(); }
  VictimProcess(const VictimProcess&) = delete;
  VictimProcess& operator=(const VictimProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Waits until it stops or ends, and returns its status.
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    if (!WIFSTOPPED(status)) pid_ = 0;
    return status;
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

// Run by the test below, in a process of its own.
TEST(Victim, DISABLED_Registers) {
  const char* const socket = getenv(kVictimsSocket);
  ASSERT_NE(socket, nullptr);
  Peer peer;
  peer.fd = *ipc::Connect(socket);
  ASSERT_TRUE(peer.Register("b").ok());
  ASSERT_TRUE(peer.Open().ok());
  peer.usage->memory_charged = kGiB;
  peer.bell->Ring();
  kill(getpid(), SIGKILL);
}

TEST(Victim, DISABLED_Stops) {
  Peer peer;
  peer.fd = *ipc::Connect(getenv(kVictimsSocket));
  ASSERT_TRUE(peer.Register("b").ok());
  ASSERT_TRUE(peer.Open().ok());
  raise(SIGSTOP);
}

TEST_F(ServiceTest, AProcessThatIsKilledLeavesEverythingToTheOthers) {
  Start(TwoTenants());
  auto stays = Connect();
  ASSERT_TRUE(stays->Register("a").ok());
  for (int trial = 0; trial < 20; ++trial) {
    const int status = VictimProcess(path_, "Registers").Wait();
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
  }
  EXPECT_TRUE(Eventually([](const Snapshot& figures) {
    return figures.sessions == 1 && figures.sessions_ever == 21 &&
           (figures.shares.empty() || figures.shares.back().memory_granted == 0);
  }));
  EXPECT_TRUE(stays->Open().ok());
}

TEST_F(ServiceTest, NonsenseEndsItsConnectionAndNoOther) {
  Start(TwoTenants());
  auto good = Connect();
  ASSERT_TRUE(good->Register("a").ok());
  for (const std::string& packet : {std::string("x"), std::string(1000, '\xff'),
                                    std::string(70'000, 'a'), std::string(4, '\0')}) {
    auto bad = Connect();
    send(bad->fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL);
    auto got = bad->Receive();
    if (got.ok() && got->what == ipc::Received::kPacket) {  // the packet may be of another version
      const auto answer = ipc::Decode(got->packet);
      EXPECT_TRUE(answer.ok() && std::holds_alternative<ipc::Refusal>(*answer)) << packet.size();
      got = bad->Receive();
    }
    EXPECT_TRUE(!got.ok() || got->what == ipc::Received::kEnd) << packet.size();
  }
  EXPECT_TRUE(good->Open().ok());
}

// A process that writes anything over its page, at any time, takes nothing that the other tenant is guaranteed, and
// stops nobody.
TEST_F(ServiceTest, WhoScribblesOverItsPageHurtsNobody) {
  Start(TwoTenants());
  auto hostile = Connect(), honest = Connect();
  ASSERT_TRUE(hostile->Register("a").ok());
  ASSERT_TRUE(hostile->Open().ok());
  ASSERT_TRUE(honest->Register("b").ok());
  ASSERT_TRUE(honest->Open().ok());
  std::atomic<bool> stop{false};
  std::thread scribbles([&] {
    std::mt19937_64 random(1);
    auto* words = reinterpret_cast<std::atomic<uint64_t>*>(hostile->usage.get());
    while (!stop.load()) {
      words[random() % (sizeof(ipc::UsagePage) / 8)].store(random(), std::memory_order_relaxed);
      if (random() % 64 == 0) hostile->bell->Ring();
    }
  });
  for (int round = 0; round < 200; ++round) {
    const uint64_t wanted = (1 + static_cast<uint64_t>(round) % 8) * kGiB;
    EXPECT_GE(honest->Ask(wanted), wanted);
    EXPECT_LE(hostile->limits->memory_granted.load(), 4 * kGiB);
  }
  stop = true;
  scribbles.join();
  EXPECT_EQ(service_->CheckInvariants(), nullptr);
}

TEST_F(ServiceTest, DescriptorsThatNobodyAskedForAreClosed) {
  Start(TwoTenants());
  auto peer = Connect();
  ASSERT_TRUE(peer->Register("a").ok());
  const auto descriptors = [] {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      static_cast<void>(entry);
      ++count;
    }
    return count;
  };
  const size_t before = descriptors();
  const ipc::Hello hello{.tenant = "a", .program = "", .spec = ""};
  const int fds[] = {0, 1, 2};
  for (int i = 0; i < 100; ++i) {
    auto sends = Connect();
    ASSERT_TRUE(sends->Send(hello, fds).ok());
    const auto got = sends->Receive();
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->what, ipc::Received::kEnd);
  }
  EXPECT_TRUE(Eventually([&](const Snapshot&) { return descriptors() == before; }));
}

TEST_F(ServiceTest, ADoorbellThatBlocksItsReaderStopsNobody) {
  Start(TwoTenants());
  auto hostile = Connect(), honest = Connect();
  ASSERT_TRUE(hostile->Register("a").ok());
  ASSERT_TRUE(hostile->Open().ok());
  ASSERT_TRUE(honest->Register("b").ok());
  ASSERT_TRUE(honest->Open().ok());
  ASSERT_EQ(fcntl(hostile->bell->fd(), F_SETFL, 0), 0);
  for (int round = 0; round < 2000; ++round) {
    uint64_t count = 0;
    hostile->bell->Ring();
    ASSERT_EQ(read(hostile->bell->fd(), &count, sizeof count), 8);
    if (round % 20 != 0) continue;
    EXPECT_GE(honest->Ask(kGiB), kGiB);
  }
}

TEST_F(ServiceTest, WhoRingsWithoutEndIsHeardNowAndThen) {
  Start(TwoTenants());
  auto hostile = Connect(), honest = Connect();
  ASSERT_TRUE(hostile->Register("a").ok());
  ASSERT_TRUE(hostile->Open().ok());
  ASSERT_TRUE(honest->Register("b").ok());
  ASSERT_TRUE(honest->Open().ok());
  std::atomic<bool> enough{false};
  std::thread rings([&] {
    while (!enough) hostile->bell->Ring();
  });
  const uint64_t looks = service_->looks();
  const Time begin = base::RealClock().Now();
  for (int round = 0; round < 200; ++round) EXPECT_GE(honest->Ask(kGiB), kGiB);
  const auto took = base::RealClock().Now() - begin;
  const uint64_t looked = service_->looks() - looks;
  enough = true;
  rings.join();
  // For the hostile process at most its limit of calls, and one more look for each to hear it again; for the other
  // one the calls that it made.
  EXPECT_LE(looked, static_cast<uint64_t>(CallLimit::kBurst + 2 * (took / CallLimit::kEvery)) +
                        2 * 200 + 10);
  // The hostile process is heard nevertheless, and when it has stopped nobody calls.
  EXPECT_GE(hostile->Ask(2 * kGiB), 2 * kGiB);
  base::Clock& clock = base::RealClock();
  uint64_t last = 0, quiet = service_->looks();
  for (int i = 0; i < 100 && last != quiet; ++i) {
    last = quiet;
    clock.SleepUntil(clock.Now() + Millis(50));
    quiet = service_->looks();
  }
  EXPECT_EQ(last, quiet);
}

TEST_F(ServiceTest, AFloodOfMessagesDoesNotKeepItFromItsBooks) {
  constexpr int kPeers = 64, kOfEach = 12;
  std::promise<void> all_sent;
  const std::shared_future<void> sent = all_sent.get_future().share();
  uint64_t looks = 0;
  int since_look = 0, most = 0, refused = 0;
  on_event_ = [&](std::string_view event) {
    if (event != "refused") return;
    sent.wait();
    // Each takes the service 100 us.
    base::Clock& clock = base::RealClock();
    for (const Time end = clock.Now() + Micros(100); clock.Now() < end;) {
    }
    if (std::exchange(looks, service_->looks()) != looks) since_look = 0;
    most = std::max(most, ++since_look);
    ++refused;
  };
  Start(TwoTenants());
  const ipc::Hello hello{.tenant = "nobody", .program = "", .spec = ""};
  std::vector<std::unique_ptr<Peer>> peers(kPeers);
  for (auto& peer : peers) {
    peer = Connect();
    for (int i = 0; i < kOfEach; ++i) ASSERT_TRUE(peer->Send(hello).ok());
  }
  all_sent.set_value();
  for (const auto& peer : peers) {
    for (int i = 0; i < kOfEach; ++i) {
      const auto got = peer->Receive();
      ASSERT_TRUE(got.ok() && got->what == ipc::Received::kPacket);
    }
  }
  Stop();
  EXPECT_EQ(refused, kPeers * kOfEach);
  EXPECT_LE(most, 10);
}

// A process that reconnects, as after a lost connection, is the same process: it gets back what its former sessions
// had.
TEST_F(ServiceTest, AProcessThatComesAgainAndAgainTakesNoMore) {
  ServiceOptions options;
  options.most_connections = 8;
  Start(TwoTenants(), std::move(options));
  for (int round = 0; round < 100; ++round) {
    auto peer = Connect();
    const auto welcome = peer->Register("a");
    ASSERT_TRUE(welcome.ok() && std::holds_alternative<ipc::Welcome>(*welcome)) << round;
    ASSERT_TRUE(peer->Open().ok());
    EXPECT_GE(peer->Ask(4 * kGiB), 4 * kGiB) << round;
    peer.reset();
    EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.sessions == 0; }));
  }
}

// Another runtime of the process does not take over what the previous one has left to the driver.
TEST_F(ServiceTest, WhatASessionThatEndedByItselfHasLeftStaysCharged) {
  Start(TwoTenants());
  auto first = Connect();
  ASSERT_TRUE(first->Register("a").ok());
  ASSERT_TRUE(first->Open().ok());
  first->usage->memory_left = kGiB;
  first->usage->ended = 1;
  first.reset();
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.sessions == 0; }));
  auto second = Connect();
  ASSERT_TRUE(second->Register("a").ok());
  ASSERT_TRUE(second->Open().ok());
  EXPECT_EQ(second->Ask(4 * kGiB), 3 * kGiB);
  EXPECT_EQ(second->limits->memory_others.load(), kGiB);
}

TEST_F(ServiceTest, WhatAnEvictedSessionHoldsStaysCharged) {
  Start(TwoTenants());
  auto first = Connect(), operates = Connect();
  ASSERT_TRUE(first->Register("a").ok());
  ASSERT_TRUE(first->Open().ok());
  first->usage->memory_charged = 4 * kGiB;
  ASSERT_TRUE(operates->Call(ipc::Change{"evict", "a", "", ""}).ok());
  auto second = Connect();
  ASSERT_TRUE(second->Register("a").ok());
  ASSERT_TRUE(second->Open().ok());
  EXPECT_EQ(second->Ask(kGiB), 0u);
}

// A process that registers as another tenant does not get back what it had as the first.
TEST_F(ServiceTest, WhatALostSessionHoldsIsTakenOverByItsTenantAlone) {
  Start(TwoTenants());
  auto first = Connect();
  ASSERT_TRUE(first->Register("a").ok());
  ASSERT_TRUE(first->Open().ok());
  first.reset();
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.sessions == 0; }));
  const auto granted = [](const Snapshot& figures) { return figures.shares.at(0).memory_granted; };
  auto other = Connect();
  ASSERT_TRUE(other->Register("b").ok());
  ASSERT_TRUE(other->Open().ok());
  EXPECT_EQ(granted(service_->TakeSnapshot()), 4 * kGiB);
  auto again = Connect();
  ASSERT_TRUE(again->Register("a").ok());
  ASSERT_TRUE(again->Open().ok());
  EXPECT_GE(again->Ask(4 * kGiB), 4 * kGiB);
}

// Lets this user register without a name, as tenant "a". Such a session does not take over what a lost session of "a"
// held.
Config OfThisUser() {
  Config config = TwoTenants();
  config.tenants[0].uids = {getuid()};
  return config;
}

TEST_F(ServiceTest, TheNextBrokerGrantsNobodyWhatAProcessHolds) {
  StartThatIsRemembered(OfThisUser());
  auto holds = Connect();
  ASSERT_TRUE(holds->Register("a").ok());
  ASSERT_TRUE(holds->Open().ok());
  auto other = Connect();
  ASSERT_TRUE(other->Register("a").ok());
  ASSERT_TRUE(other->Open().ok());
  holds->usage->memory_charged = 3 * kGiB;
  holds->usage->memory_kept = 3 * kGiB;
  holds->usage->memory_recalled = 1;
  EXPECT_EQ(other->Ask(kGiB), kGiB);
  // The file has the grant before the process is told of it.
  const auto left = RemainsFile(Books()).Read();
  ASSERT_TRUE(left.ok() && left->has_value()) << left.status();
  ASSERT_EQ((*left)->processes.size(), 2u);
  EXPECT_EQ((*left)->processes[1].holds.at(0).granted, other->limits->memory_granted.load());

  Again(OfThisUser());
  // Both processes are alive, and neither has come back.
  EXPECT_EQ(service_->TakeSnapshot().shares.at(0).memory_granted, 4 * kGiB);
  auto first = Connect();
  ASSERT_TRUE(first->Register("").ok());
  ASSERT_TRUE(first->Open().ok());
  EXPECT_EQ(first->limits->memory_granted.load(), 0u);
  EXPECT_EQ(first->Ask(2 * kGiB), 0u);
  // A process that comes back has its grant at once.
  auto back = Connect();
  ASSERT_TRUE(back->Register("a").ok());
  ASSERT_TRUE(back->Open().ok());
  EXPECT_EQ(back->limits->memory_granted.load(), 3 * kGiB);
  EXPECT_EQ(first->Ask(2 * kGiB), 0u);
  auto other_back = Connect();
  ASSERT_TRUE(other_back->Register("a").ok());
  ASSERT_TRUE(other_back->Open().ok());
  EXPECT_EQ(other_back->limits->memory_granted.load(), kGiB);
}

// The grant of a process that has come back is in the file once, although the file is not rewritten for it.
TEST_F(ServiceTest, EveryGrantIsInTheFileOnce) {
  StartThatIsRemembered(OfThisUser());
  auto a = Connect();
  ASSERT_TRUE(a->Register("a").ok());
  ASSERT_TRUE(a->Open().ok());
  a.reset();
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.sessions == 0; }));
  const auto operates = Connect()->Call(ipc::Change{"suspend", "b", "", ""});
  ASSERT_TRUE(operates.ok() &&
              std::holds_alternative<ipc::Part>(*operates));  // the file has been written
  const auto granted = [&] {
    const auto left = RemainsFile(Books()).Read();
    std::map<std::string, uint64_t> sums;
    if (!left.ok() || !left->has_value()) return sums;
    for (const Remains::Process& process : (*left)->processes) {
      for (const auto& holding : process.holds) sums[process.tenant] += holding.granted;
    }
    return sums;
  };
  EXPECT_EQ(granted(), (std::map<std::string, uint64_t>{{"a", 4 * kGiB}}));
  auto back = Connect(), b = Connect();
  ASSERT_TRUE(back->Register("a").ok());
  ASSERT_TRUE(back->Open().ok());
  EXPECT_EQ(granted(), (std::map<std::string, uint64_t>{{"a", 4 * kGiB}}));
  ASSERT_TRUE(b->Register("b").ok());
  ASSERT_TRUE(b->Open().ok());
  EXPECT_EQ(granted(), (std::map<std::string, uint64_t>{{"a", 4 * kGiB}, {"b", 8 * kGiB}}));
  // Memory that one process gives back and another one gets.
  auto other = Connect();
  ASSERT_TRUE(other->Register("b").ok());
  ASSERT_TRUE(other->Open().ok());
  const auto move = [](Peer& from, Peer& to, uint64_t left) {
    std::thread gives([&from, left, seen = from.limits->memory_recall.load()] {
      base::Clock& clock = base::RealClock();
      while (from.limits->memory_recall.load() == seen) clock.SleepUntil(clock.Now() + Millis(1));
      from.usage->memory_kept = left;
      from.usage->memory_recalled = from.limits->memory_recall.load();
      from.bell->Ring();
    });
    EXPECT_EQ(to.Ask(8 * kGiB - left), 8 * kGiB - left);
    gives.join();
  };
  move(*b, *other, 7 * kGiB);
  EXPECT_EQ(granted(), (std::map<std::string, uint64_t>{{"a", 4 * kGiB}, {"b", 8 * kGiB}}));
  // A file that was removed is created again.
  std::filesystem::remove(Books());
  move(*b, *other, 6 * kGiB);
  EXPECT_EQ(granted(), (std::map<std::string, uint64_t>{{"a", 4 * kGiB}, {"b", 8 * kGiB}}));
}

TEST_F(ServiceTest, WhatAProcessHeldThatHasEndedIsFreeForTheNextBroker) {
  StartThatIsRemembered(TwoTenants());
  VictimProcess victim(path_, "Stops");
  ASSERT_TRUE(WIFSTOPPED(victim.Wait()));
  Again(TwoTenants());
  const auto granted = [](const Snapshot& figures) { return figures.shares.at(0).memory_granted; };
  EXPECT_EQ(granted(service_->TakeSnapshot()), 8 * kGiB) << "it lives, if it does not run";
  // The broker notices the end although the process never contacted it.
  victim.Kill();
  EXPECT_TRUE(Eventually([&](const Snapshot& figures) { return granted(figures) == 0; }));
  // There is nothing left to write.
  Stop();
  EXPECT_FALSE(std::filesystem::exists(Books()));
}

TEST_F(ServiceTest, WhatADeadProcessHeldIsNobodysWhileTheDriverNamesIt) {
  Config config = TwoTenants();
  config.reclaim_after = Nanos(0);
  Start(config);
  VictimProcess victim(path_, "Stops");
  ASSERT_TRUE(WIFSTOPPED(victim.Wait()));
  const pid_t child = victim.pid();
  const auto now = [] { return base::RealClock().Now(); };
  service_->TakeNamed({child}, now());
  victim.Kill();
  const auto reclaiming = [](const Snapshot& figures) {
    return figures.shares.at(0).memory_reclaiming;
  };
  ASSERT_TRUE(Eventually([&](const Snapshot& figures) { return reclaiming(figures) > 0; }));
  ASSERT_TRUE(service_->TakeReclaimSubjects().has_value());
  service_->TakeNamed({child}, now());
  service_->TakeNamed({}, now() - Seconds(20));  // the query was made before the process ended
  const Time later = now() + Millis(100);
  EXPECT_TRUE(Eventually([&](const Snapshot& figures) {
    return reclaiming(figures) == 0 || base::RealClock().Now() > later;
  }));
  EXPECT_GT(reclaiming(service_->TakeSnapshot()), 0u) << "it is named";
  service_->TakeNamed({}, now());
  EXPECT_TRUE(Eventually([](const Snapshot& figures) {
    return figures.shares.at(0).memory_reclaiming == 0 && figures.shares.at(0).memory_granted == 0;
  }));
  EXPECT_FALSE(service_->TakeReclaimSubjects().has_value());
}

TEST(Victim, DISABLED_Execs) {
  Peer peer;
  peer.fd = *ipc::Connect(getenv(kVictimsSocket));
  ASSERT_TRUE(peer.Register("b").ok());
  ASSERT_TRUE(peer.Open().ok());
  peer.usage->memory_charged = kGiB;
  raise(SIGSTOP);
  char
      program
          [] = "/proc/self/exe",
   filter[] = "--gtest_filter=Victim.DISABLED_Sleeps", all[] = "--gtest_also_run_disabled_tests",
   quiet[] = "--gtest_brief=1",
   // The number of arguments differs: without address randomization, the stack begins below the arguments.
      more[] = "--gtest_stream_result_to=", and_more[] = "--gtest_random_seed=1";
  char* const arguments[] = {program, filter, all, quiet, more, and_more, nullptr};
  execv(program, arguments);
}

TEST(Victim, DISABLED_Sleeps) { raise(SIGSTOP); }

// A process can fake the program that it runs, and a descriptor of the driver may survive an exec. So the driver's
// count decides.
TEST_F(ServiceTest, AProgramThatBecomesAnotherGivesBackWhatItHadWhenTheDriverCountsNothingOfIt) {
  StartThatIsRemembered(TwoTenants());
  VictimProcess victim(path_, "Execs");
  ASSERT_TRUE(WIFSTOPPED(victim.Wait()));
  const pid_t child = victim.pid();
  const Findings holds = {
      {{.gpu = kGpu, .pid = child}, {.counted = kGiB, .claim = {}, .program = {}}}};
  service_->TakeAudit(holds);
  ASSERT_EQ(kill(child, SIGCONT), 0);
  ASSERT_TRUE(WIFSTOPPED(victim.Wait()));
  const auto granted = [](const Snapshot& figures) {
    uint64_t sum = 0;
    for (const Share& share : figures.shares) sum += share.memory_granted;
    return sum;
  };
  ASSERT_TRUE(Eventually([](const Snapshot& figures) { return figures.sessions == 0; }));
  const Time looked_at = base::RealClock().Now() + Millis(300);
  EXPECT_TRUE(Eventually([&](const Snapshot& figures) {
    service_->TakeAudit(holds);
    EXPECT_GT(granted(figures), 0u);
    return granted(figures) == 0 || base::RealClock().Now() > looked_at;
  }));
  // The process is listed, and what it holds is unknown.
  Audit unknown(0);
  unknown.Add({}, {{{.gpu = kGpu, .pid = child}, std::nullopt}}, {});
  for (int i = 0; i < 5; ++i) service_->TakeAudit(unknown.Result());
  const Time looked_again = base::RealClock().Now() + Millis(100);
  EXPECT_TRUE(Eventually([&](const Snapshot& figures) {
    return granted(figures) == 0 || base::RealClock().Now() > looked_again;
  }));
  EXPECT_GT(granted(service_->TakeSnapshot()), 0u);
  EXPECT_TRUE(Eventually([&](const Snapshot& figures) {
    service_->TakeAudit({});
    return granted(figures) == 0;
  }));
  EXPECT_EQ(kill(child, 0), 0);
}

// Whether the next program is of the same tenant or of another, and whether or not this broker has admitted the first.
TEST_F(ServiceTest, WhatAProgramHadIsFreeWhenItsProcessRegistersAsAnotherProgram) {
  Config config = TwoTenants();
  config.reclaim_after = Millis(1);
  config.reclaim_most = Seconds(10);
  for (const char* const next : {"a", "b"}) {
    for (const bool restarted : {false, true}) {
      StartThatIsRemembered(config);
      auto before = Connect(), after = Connect();
      before->image = 1, after->image = 2;
      ASSERT_TRUE(before->Register("a").ok());
      ASSERT_TRUE(before->Open().ok());
      const uint64_t all = before->limits->memory_granted.load();
      before->usage->memory_charged = all;
      // It would be named in any case, now for what the other program holds.
      service_->TakeNamed({getpid()}, base::RealClock().Now());
      if (restarted) {
        Again(config);
        after = Connect();
        after->image = 2;
        service_->TakeNamed({getpid()}, base::RealClock().Now());
      } else {
        before->fd.Reset();
      }
      ASSERT_TRUE(after->Register(next).ok());
      EXPECT_TRUE(Eventually([](const Snapshot& figures) {
        return figures.shares.at(0).memory_granted == 0;
      })) << next;
      ASSERT_TRUE(after->Open().ok());
      if (*next == 'a') {
        EXPECT_EQ(after->limits->memory_granted.load(), all);
      }
      EXPECT_EQ(service_->TakeSnapshot().sessions, 1u);
      End();
    }
  }
}

TEST_F(ServiceTest, WhatAnOperatorChangedStaysInForce) {
  StartThatIsRemembered(TwoTenants());
  auto process = Connect(), operates = Connect();
  ASSERT_TRUE(process->Register("a").ok());
  ASSERT_TRUE(process->Open().ok());
  const auto change = [&](const ipc::Change& what) {
    const auto answer = Connect()->Call(what);
    ASSERT_TRUE(answer.ok() && std::holds_alternative<ipc::Part>(*answer)) << what.what;
  };
  change({"set", "a", "", "memory=2GiB"});
  change({"suspend", "a", "", ""});
  change({"drain", "a", "", ""});
  Again(TwoTenants());
  Share share = service_->TakeSnapshot().shares.at(0);
  EXPECT_EQ(share.memory_limit, 2 * kGiB);
  EXPECT_TRUE(share.suspended && share.draining);
  const auto refused = [](const absl::StatusOr<ipc::Message>& answer) {
    return answer.ok() && std::holds_alternative<ipc::Refusal>(*answer);
  };
  auto back = Connect(), fresh = Connect();
  EXPECT_FALSE(refused(back->Register("a"))) << "it was there before";
  EXPECT_TRUE(refused(fresh->Register("a")));
  change({"undrain", "a", "", ""});
  change({"resume", "a", "", ""});
  // A new configuration overrides what an operator set for the old one.
  Config config = TwoTenants();
  config.tenants[0].spec = "memory=3GiB";
  Again(config);
  EXPECT_FALSE(refused(Connect()->Register("a")));
  Again(config);
  ASSERT_TRUE((back = Connect())->Register("a").ok());
  ASSERT_TRUE(back->Open().ok());
  share = service_->TakeSnapshot().shares.at(0);
  EXPECT_EQ(share.memory_limit, 3 * kGiB);
  EXPECT_FALSE(share.suspended || share.draining);
}

TEST_F(ServiceTest, AFileThatIsNotItsOwnIsNotBelieved) {
  StartThatIsRemembered(TwoTenants());
  auto operates = Connect();
  ASSERT_TRUE(operates->Call(ipc::Change{"drain", "", "", ""}).ok());
  Stop();
  std::filesystem::permissions(Books(), std::filesystem::perms(0666));
  ServiceOptions options;
  options.socket = path_;
  options.remains = Books();
  Begin(TwoTenants(), std::move(options));
  EXPECT_THAT(Said(), ::testing::Contains(::testing::HasSubstr("remains_refused")));
  const auto welcome = Connect()->Register("a");
  EXPECT_TRUE(welcome.ok() && std::holds_alternative<ipc::Welcome>(*welcome));
}

TEST_F(ServiceTest, WhatAnAuditFoundIsNotShownWhenTheNextFails) {
  Config config = TwoTenants();
  config.audit_interval = Millis(5);
  Start(config);
  auto peer = Connect();
  ASSERT_TRUE(peer->Register("a").ok());
  ASSERT_TRUE(peer->Open().ok());
  std::atomic<bool> fails{false};
  Auditor auditor(
      *service_,
      [&](const std::vector<std::string>&) -> absl::StatusOr<Counts> {
        if (fails) return absl::UnavailableError("no answer");
        return Counts{{{kGpu, 1}, kGiB}, {{kGpu, getpid()}, kGiB}};
      },
      base::RealClock());
  const auto stranger = [](const Snapshot& figures) {
    return figures.audited && figures.gpus.at(0).strangers.size() == 1 &&
           figures.shares.at(0).processes.at(0).memory_by_driver == kGiB;
  };
  EXPECT_TRUE(Eventually(stranger));
  fails = true;
  EXPECT_TRUE(Eventually([](const Snapshot& figures) {
    return !figures.audited && figures.audits > 0 && figures.gpus.at(0).strangers.empty() &&
           figures.shares.at(0).processes.at(0).memory_by_driver == UINT64_MAX;
  }));
  fails = false;
  EXPECT_TRUE(Eventually(stranger));
  config.audit_interval = Nanos(0);
  ASSERT_TRUE(service_->Apply(config).ok());
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return !figures.audited; }));
}

TEST_F(ServiceTest, ConnectionsHaveABound) {
  ServiceOptions options;
  options.most_connections = 8;
  Config config = TwoTenants();
  config.operators = {getuid() + 1};
  Start(config, std::move(options));
  auto good = Connect();
  ASSERT_TRUE(good->Register("a").ok());
  std::vector<std::unique_ptr<Peer>> flood;
  for (int i = 0; i < 50; ++i) flood.push_back(Connect());
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.refused >= 40; }));
  EXPECT_TRUE(good->Open().ok());
}

TEST_F(ServiceTest, NobodyFillsTheLog) {
  Start(TwoTenants());
  const auto refused = [this] {
    const std::vector<std::string> said = Said();
    return std::count_if(said.begin(), said.end(), [](const std::string& line) {
      return line.substr(0, line.find(' ')) == "refused";
    });
  };
  std::vector<std::unique_ptr<Peer>> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(Connect());
  base::Clock& clock = base::RealClock();
  const Time begun = clock.Now();
  for (int round = 0; round < 40; ++round) {
    for (const auto& each : flood) ASSERT_TRUE(each->Register("nobody").ok());
  }
  const int64_t most = LineLimit::kBurst + (clock.Now() - begun) / LineLimit::kEvery + 1;
  EXPECT_GE(refused(), LineLimit::kBurst);
  EXPECT_LE(refused(), most);
  EXPECT_TRUE(Eventually([&](const Snapshot&) {
    flood[0]->Register("nobody").IgnoreError();
    const std::vector<std::string> said = Said();
    const std::string wanted = absl::StrCat("lines_left_out uid=", getuid(), " lines=");
    return std::any_of(said.begin(), said.end(), [&](const std::string& line) {
      return line.substr(0, wanted.size()) == wanted;
    });
  }));
}

TEST_F(ServiceTest, WhoFillsItDoesNotKeepItsOperatorsOut) {
  ServiceOptions options;
  options.most_of_user = 8;
  Config config = TwoTenants();
  config.operators = {getuid() + 1};
  Start(config, std::move(options));
  std::vector<std::unique_ptr<Peer>> flood;
  for (int i = 0; i < 8; ++i) {
    flood.push_back(Connect());
    ASSERT_TRUE(flood.back()->Register("a").ok());
  }
  const auto evicts = [&] {
    const auto answer =
        Connect()->Call(ipc::Change{.what = "evict", .tenant = "a", .gpu = "", .spec = ""});
    return answer.ok() && std::holds_alternative<ipc::Part>(*answer);
  };
  EXPECT_FALSE(evicts()) << "it is no operator";
  config.operators = {getuid()};
  ASSERT_TRUE(service_->Apply(config).ok());
  EXPECT_TRUE(evicts());
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.sessions == 0; }));
  // Not without a bound.
  for (int i = 0; i < 50; ++i) flood.push_back(Connect());
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.refused >= 20; }));
}

TEST_F(ServiceTest, TheOperatorChangesLimitsOfARunningTenant) {
  Start(TwoTenants());
  auto peer = Connect();
  ASSERT_TRUE(peer->Register("a").ok());
  ASSERT_TRUE(peer->Open().ok());
  auto operates = Connect();
  auto answer =
      operates->Call(ipc::Change{.what = "set", .tenant = "a", .gpu = "", .spec = "memory=6GiB"});
  ASSERT_TRUE(answer.ok() && std::holds_alternative<ipc::Part>(*answer));
  EXPECT_EQ(peer->limits->memory_limit.load(), 6 * kGiB);
  EXPECT_GE(peer->Ask(5 * kGiB), 5 * kGiB);
  answer =
      operates->Call(ipc::Change{.what = "set", .tenant = "a", .gpu = "", .spec = "memory=60GiB"});
  ASSERT_TRUE(answer.ok() && std::holds_alternative<ipc::Refusal>(*answer));
  EXPECT_EQ(peer->limits->memory_limit.load(), 6 * kGiB);
  EXPECT_TRUE(Eventually([](const Snapshot& figures) { return figures.refused == 0; }))
      << "no process was refused";
}

// Without the key the user of the broker operates; with it only the listed users.
TEST_F(ServiceTest, OperatesWhomTheConfigurationNames) {
  const auto refused = [&] {
    const auto answer = Connect()->Call(ipc::Change{"set", "a", "", "cap=50%"});
    return !answer.ok() || std::holds_alternative<ipc::Refusal>(*answer);
  };
  Config config = TwoTenants();
  Start(config);
  auto process = Connect();
  ASSERT_TRUE(process->Register("a").ok() && process->Open().ok());
  EXPECT_FALSE(refused()) << "whoever started it, beside it";
  config.operators = {{getuid() + 1}};
  ASSERT_TRUE(service_->Apply(config).ok());
  EXPECT_TRUE(refused()) << "nobody else then";
  config.operators = {{getuid() + 1, getuid()}};
  ASSERT_TRUE(service_->Apply(config).ok());
  EXPECT_FALSE(refused());
}

// Tenants without a quota share the memory that quotas leave. A drained one gets no more of it; the others do.
TEST_F(ServiceTest, OneWithoutAQuotaIsDrainedAndNoOther) {
  Config config;
  config.tenants = {Tenant("a", "compute=50%"), Tenant("b", "compute=50%")};
  Start(config);
  auto a = Connect(), b = Connect(), operates = Connect();
  ASSERT_TRUE(a->Register("a").ok());
  ASSERT_TRUE(a->Open().ok());
  ASSERT_TRUE(b->Register("b").ok());
  ASSERT_TRUE(b->Open().ok());
  a->usage->memory_charged = kGiB;
  std::atomic<bool> enough{false};
  // Gives back unused memory, like a real process.
  std::thread gives([&] {
    while (!enough) {
      const uint32_t recall = a->limits->memory_recall.load();
      if (recall != a->usage->memory_recalled.load()) {
        a->usage->memory_kept = std::max(kGiB, a->limits->memory_recall_to.load());
        a->usage->memory_recalled = recall;
        a->bell->Ring();
      }
      base::RealClock().SleepUntil(base::RealClock().Now() + Millis(1));
    }
  });
  EXPECT_GE(b->Ask(8 * kGiB), 8 * kGiB);
  ASSERT_TRUE(operates->Call(ipc::Change{"drain", "a", "", ""}).ok());
  EXPECT_TRUE((a->limits->flags.load() & ipc::LimitsPage::kDraining) != 0);
  // Its unused memory is recalled, so it gets no more.
  EXPECT_EQ(a->Ask(3 * kGiB), kGiB);
  EXPECT_FALSE((b->limits->flags.load() & ipc::LimitsPage::kDraining) != 0);
  EXPECT_GE(b->Ask(10 * kGiB), 10 * kGiB);
  ASSERT_TRUE(operates->Call(ipc::Change{"undrain", "a", "", ""}).ok());
  EXPECT_TRUE((a->limits->flags.load() & ipc::LimitsPage::kDraining) == 0);
  enough = true;
  gives.join();
}

TEST_F(ServiceTest, ALaterConfigurationCountsAtOnceOrNotAtAll) {
  Start(TwoTenants());
  auto peer = Connect();
  ASSERT_TRUE(peer->Register("a").ok());
  ASSERT_TRUE(peer->Open().ok());
  Config next = TwoTenants();
  next.tenants[0].spec = "memory=12GiB";
  EXPECT_EQ(service_->Apply(next).code(), absl::StatusCode::kResourceExhausted) << "with b's 8";
  EXPECT_EQ(peer->limits->memory_limit.load(), 4 * kGiB);
  // One step may give a tenant what another one gives up.
  next.tenants[0].spec = "memory=2GiB,guarantee=20%";
  next.tenants[1].spec = "memory=13GiB,guarantee=80%";
  EXPECT_TRUE(service_->Apply(next).ok());
  next.tenants[0].spec = "memory=12GiB,guarantee=80%";
  next.tenants[1].spec = "memory=2GiB,guarantee=20%";
  EXPECT_TRUE(service_->Apply(next).ok());
  EXPECT_EQ(peer->limits->memory_limit.load(), 12 * kGiB);
}

}  // namespace
}  // namespace gpushare::broker
