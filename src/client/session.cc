// SPDX-License-Identifier: Apache-2.0
#include "client/session.h"

#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock_lock.h"
#include "base/host_fd.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "client/inherited.h"
#include "ipc/socket.h"

namespace gpushare::client {
namespace {

// How often to look at the connection with a clock that cannot wait for descriptors.
constexpr Nanos kLookAtConnection = Millis(1);
// How often to look whether the descriptors are still there; and whether to stop, if the one that tells is not.
constexpr Nanos kLookAtDescriptors = Seconds(5), kWithoutStop = Millis(100);

bool SaysEvicted(const ipc::Refusal& refusal) {
  return refusal.code == static_cast<uint32_t>(absl::StatusCode::kAborted);
}

// Made of what the kernel gives each program by chance (ipc::Hello::image), so that it tells nothing of its parts, which
// protect the stack.
uint64_t ImageOfThisProgram() {
  uint64_t parts[2] = {};
  // The kernel passes the address as a number.
  const auto* const given = reinterpret_cast<const void*>(getauxval(AT_RANDOM));  // NOLINT
  if (given != nullptr) std::memcpy(parts, given, sizeof(parts));
  return parts[0] ^ parts[1];
}

ipc::Hello OfThisProgram(ipc::Hello hello) {
  hello.image = ImageOfThisProgram();
  return hello;
}

absl::Status Unexpected(const char* answer_to) {
  return absl::InternalError(
      absl::StrCat("the broker answered something else to ", answer_to, " (GPUSHARE_BROKER)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Connect(std::string path, ipc::Hello hello,
                                                          base::Clock& clock,
                                                          const SessionOptions& options) {
  GPUSHARE_ASSIGN_OR_RETURN(ForkMark mark, ForkMark::Create());
  base::HostFd stop = base::HostFd::Apart(base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!stop) return absl::ErrnoToStatus(errno, "eventfd");
  std::unique_ptr<Session> session(new Session(std::move(path), std::move(hello), clock, options,
                                               std::make_shared<const ForkMark>(std::move(mark)),
                                               std::move(stop)));
  GPUSHARE_ASSIGN_OR_RETURN(base::UniqueFd fd, session->Dial());
  session->Begin(std::move(fd));
  session->thread_ = clock.StartService("gpushare-broker", [raw = session.get()] { raw->Run(); });
  return session;
}

Session::Session(std::string path, ipc::Hello hello, base::Clock& clock,
                 const SessionOptions& options, std::shared_ptr<const ForkMark> fork_mark,
                 base::HostFd stop)
    : path_(std::move(path)),
      hello_(OfThisProgram(std::move(hello))),
      clock_(clock),
      options_(options),
      fork_mark_(std::move(fork_mark)),
      stop_(std::move(stop)) {}

Session::~Session() {
  if (fork_mark_->InChild()) {  // a child does not have the threads, and has closed the connection
    static_cast<void>(thread_.release());
    for (Gpu& gpu : gpus_) static_cast<void>(gpu.thread.release());
    return;
  }
  stopping_.store(1);
  const uint64_t once = 1;
  if (stop_.IsThere()) static_cast<void>(!write(stop_.get(), &once, sizeof(once)));
  clock_.Wake(stopping_, INT32_MAX);
  if (thread_ != nullptr) thread_->Join();
  for (Gpu& gpu : gpus_) gpu.session->Lose(/*goes_on=*/false, /*for_good=*/true);
  for (Gpu& gpu : gpus_) gpu.thread->Join();
  if (!connection_) return;
  for (Gpu& gpu : gpus_) gpu.session->GiveAllBack();
  EndConnection();
}

void Session::Begin(base::UniqueFd connection) {
  connection_ = base::HostFd::Apart(std::move(connection));
  CloseInChildren(connection_.get());
}

// Shuts the connection down first: closing would not end it while a child that CloseInChildren() missed holds a copy.
void Session::EndConnection() {
  if (connection_.IsThere()) shutdown(connection_.get(), SHUT_RDWR);
  KeepInChildren(connection_.get());
  connection_.Reset();
}

// Returns the broker's answer to `question`; a refusal becomes an error.
absl::StatusOr<ipc::Message> Session::Exchange(int fd, const ipc::Message& question, Time deadline,
                                               std::vector<base::UniqueFd>* fds) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string packet, ipc::Encode(question));
  // If the broker has gone, a message that says why may still be waiting to be read.
  const absl::Status sent = ipc::Send(fd, packet);
  if (!sent.ok() && sent.code() != absl::StatusCode::kUnavailable) return sent;
  for (;;) {
    GPUSHARE_ASSIGN_OR_RETURN(ipc::Received received, ipc::Receive(fd));
    if (received.what == ipc::Received::kEnd) {
      return absl::UnavailableError("the broker has ended the connection (GPUSHARE_BROKER)");
    }
    if (received.what == ipc::Received::kNothing) {
      if (stopping() || !Await(fd, deadline) || stopping()) {
        return absl::UnavailableError(
            absl::StrCat("the broker at ", Quoted(path_), " does not answer (GPUSHARE_BROKER)"));
      }
      DrainStop();
      continue;
    }
    GPUSHARE_ASSIGN_OR_RETURN(ipc::Message answer, ipc::Decode(received.packet));
    if (const auto* const refusal = std::get_if<ipc::Refusal>(&answer)) {
      // The refusal was sent before the question arrived.
      if (SaysEvicted(*refusal)) evicted_.store(true);
      return ipc::FromRefusal(*refusal);
    }
    if (fds != nullptr) *fds = std::move(received.fds);
    return answer;
  }
}

absl::StatusOr<base::UniqueFd> Session::Dial() {
  const Time deadline = AnswerBy();
  absl::StatusOr<base::UniqueFd> connected = ipc::ConnectBefore(path_, clock_, deadline, stopping_);
  if (!connected.ok()) {
    return absl::Status(connected.status().code(),
                        absl::StrCat(connected.status().message(), " (GPUSHARE_BROKER)"));
  }
  base::UniqueFd fd = *std::move(connected);
  GPUSHARE_ASSIGN_OR_RETURN(const ipc::Message answer,
                            Exchange(fd.get(), hello_, deadline, nullptr));
  const auto* const welcome = std::get_if<ipc::Welcome>(&answer);
  if (welcome == nullptr) return Unexpected("Hello");
  if (tenant_.empty()) tenant_ = welcome->tenant;
  return fd;
}

absl::StatusOr<Session::Opened> Session::Open(int fd, const Gpu& gpu) {
  std::vector<base::UniqueFd> fds;
  GPUSHARE_ASSIGN_OR_RETURN(ipc::Message answer, Exchange(fd, gpu.open, AnswerBy(), &fds));
  auto* const opened = std::get_if<ipc::GpuOpened>(&answer);
  if (opened == nullptr || opened->uuid != gpu.uuid || fds.size() != 3) {
    return Unexpected("OpenGpu");
  }
  GPUSHARE_ASSIGN_OR_RETURN(ipc::Mapped<const ipc::LimitsPage> limits,
                            ipc::MapLimits(fds[0].get()));
  GPUSHARE_ASSIGN_OR_RETURN(ipc::Mapped<ipc::UsagePage> usage, ipc::MapUsage(fds[1].get()));
  GPUSHARE_ASSIGN_OR_RETURN(ipc::Doorbell bell, ipc::Doorbell::Of(std::move(fds[2])));
  return Opened{
      std::make_shared<const Pages>(Pages{std::move(limits), std::move(usage), std::move(bell)}),
      std::move(opened->spec)};
}

absl::StatusOr<std::shared_ptr<GpuSession>> Session::OpenGpu(const std::string& uuid,
                                                             uint64_t memory, uint32_t sm_count,
                                                             std::optional<std::string> spec) {
  if (fork_mark_->InChild()) {
    return absl::FailedPreconditionError("a forked child has no session with the broker");
  }
  const base::ClockLock talking(clock_, talking_);
  for (const Gpu& gpu : gpus_) {
    if (gpu.uuid == uuid) return gpu.session;
  }
  if (!connection_.IsThere()) {
    return absl::UnavailableError("the broker has gone (GPUSHARE_BROKER)");
  }
  const ipc::OpenGpu open{.uuid = uuid, .memory = memory, .sm_count = sm_count};
  Gpu gpu{.open = open, .uuid = uuid, .session = nullptr, .thread = nullptr};
  if (spec.has_value()) gpu.open = ipc::OpenGpuAs{.gpu = open, .spec = *std::move(spec)};
  GPUSHARE_ASSIGN_OR_RETURN(Opened opened, Open(connection_.get(), gpu));
  gpu.session = std::make_shared<GpuSession>(clock_, fork_mark_, memory, std::move(opened.pages),
                                             std::move(opened.spec), options_.open_on_loss);
  gpus_.reserve(gpus_.size() + 1);  // once the thread runs, nothing fails
  gpu.thread =
      clock_.StartService("gpushare-limits", [this, raw = gpu.session.get()] { Serve(*raw); });
  gpus_.push_back(std::move(gpu));
  return gpus_.back().session;
}

void Session::Serve(GpuSession& gpu) {
  while (!stopping()) gpu.Await(gpu.Look(clock_.Now()));
}

// ---- The thread of the connection.

void Session::Pause(Nanos time) { clock_.Wait(stopping_, 0, After(clock_.Now(), time), Nanos(0)); }

// Waits until the connection can be read or the session stops. False: `deadline` passed first.
bool Session::Await(int connection, Time deadline) {
  const std::array<int, 2> fds = {connection, stop_.get()};
  return ipc::AwaitReadable(std::span(fds).first(stop_.IsThere() ? 2 : 1), clock_, deadline);
}

// A program that mixes up its descriptors may write to this one, which must not make the thread spin.
void Session::DrainStop() {
  uint64_t times;
  if (stop_.IsThere()) static_cast<void>(!read(stop_.get(), &times, sizeof(times)));
}

// The program may have closed the descriptors, which ends no wait for them.
Time Session::LookAgain() {
  return After(clock_.Now(), stop_.IsThere() ? kLookAtDescriptors : kWithoutStop);
}

void Session::Run() {
  while (!stopping()) {
    try {
      if (clock_.LookEvery() == Nanos(0)) {
        Await(connection_.get(), LookAgain());
      } else {
        Pause(kLookAtConnection);
      }
      if (stopping()) return;
      DrainStop();
      if (!BrokerIsGone()) continue;
      if (!evicted_) FindBroker();
      if (evicted_) return;
    } catch (const std::bad_alloc&) {  // it looks again, when the host may have some memory
      Pause(options_.first_retry);
    }
  }
}

// Messages without a question are ignored, except an eviction of this process.
bool Session::BrokerIsGone() {
  const base::ClockLock talking(clock_, talking_);
  const absl::StatusOr<ipc::Received> received =
      connection_.IsThere() ? ipc::Receive(connection_.get())
                            : absl::FailedPreconditionError("the program has closed it");
  if (received.ok() && received->what == ipc::Received::kPacket) {
    const absl::StatusOr<ipc::Message> message = ipc::Decode(received->packet);
    const auto* refusal = message.ok() ? std::get_if<ipc::Refusal>(&*message) : nullptr;
    if (refusal != nullptr && SaysEvicted(*refusal)) evicted_.store(true);
  }
  if (received.ok() && received->what != ipc::Received::kEnd) return false;
  EndConnection();
  const bool evicted = evicted_.load();
  for (const Gpu& gpu : gpus_) gpu.session->Lose(options_.open_on_loss && !evicted, evicted);
  return true;
}

void Session::FindBroker() {
  Nanos pause = options_.first_retry;
  while (!stopping() && !evicted_) {
    Pause(pause);
    if (stopping() || TryAgain()) return;
    pause = std::min(2 * pause, options_.longest_retry);
  }
  if (!evicted_) return;
  const base::ClockLock talking(clock_, talking_);
  for (const Gpu& gpu : gpus_) gpu.session->Lose(/*goes_on=*/false, /*for_good=*/true);
}

bool Session::TryAgain() try {
  const base::ClockLock talking(clock_, talking_);
  absl::StatusOr<base::UniqueFd> fd = Dial();
  if (!fd.ok()) return false;
  std::vector<std::shared_ptr<const Pages>> pages;
  for (const Gpu& gpu : gpus_) {
    absl::StatusOr<Opened> opened = Open(fd->get(), gpu);
    if (!opened.ok()) return false;
    pages.push_back(std::move(opened->pages));
  }
  Begin(*std::move(fd));
  for (size_t i = 0; i < gpus_.size(); ++i) gpus_[i].session->Resume(std::move(pages[i]));
  return true;
} catch (const std::bad_alloc&) {  // there may be some the next time
  return false;
}

}  // namespace gpushare::client
