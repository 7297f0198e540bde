// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/ask.h"

#include <atomic>
#include <cstdint>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "broker/json.h"
#include "cli/output.h"
#include "ipc/socket.h"

namespace gpushare::cli {
namespace {

constexpr Nanos kPatience = Seconds(10);
constexpr size_t kMostAnswer = 256 << 20;

absl::Status WithAdvice(const absl::Status& status, const char* named_by) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  return absl::UnavailableError(
      absl::StrCat(Printable(std::string(status.message()), 1024),
                   "; start one with `gpushare broker`, or name another by ", named_by));
}

}  // namespace

std::string SocketOfEnvironment() {
  const std::string named = base::GetEnv("GPUSHARE_BROKER").value_or("none");
  return named == "none" ? kDefaultSocket : named;
}

absl::StatusOr<BrokerConnection> BrokerConnection::To(const std::string& socket,
                                                      const char* named_by) {
  base::Clock& clock = base::RealClock();
  static constinit std::atomic<uint32_t> never_stops{0};
  absl::StatusOr<base::UniqueFd> fd =
      ipc::ConnectBefore(socket, clock, clock.Now() + kPatience, never_stops);
  if (!fd.ok()) return WithAdvice(fd.status(), named_by);
  return BrokerConnection(socket, named_by, *std::move(fd));
}

absl::Status BrokerConnection::NoAnswer(const absl::Status& why) const {
  // There is a broker, so advice to start one would not help.
  if (absl::IsDeadlineExceeded(why)) {
    return absl::UnavailableError(absl::StrCat(
        "the broker at '", socket_, "' has not answered for ", kPatience.count() / 1'000'000'000,
        " s: it is stopped, or hangs; continue it, or name another by ", named_by_));
  }
  return WithAdvice(absl::UnavailableError(absl::StrCat("the broker at '", socket_,
                                                        "' does not answer: ", why.message())),
                    named_by_);
}

absl::StatusOr<std::string> BrokerConnection::Ask(const std::string& what) {
  return Answer(ipc::Query{what});
}

absl::StatusOr<broker::Snapshot> BrokerConnection::List() {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string text, Ask("list"));
  return broker::SnapshotFromJson(text);
}

absl::StatusOr<broker::Recording> BrokerConnection::Trace(std::optional<uint64_t> from) {
  GPUSHARE_ASSIGN_OR_RETURN(
      const std::string text,
      Ask(from.has_value() ? absl::StrCat("trace ", *from) : std::string("trace")));
  return broker::RecordingFromJson(text);
}

absl::StatusOr<std::string> BrokerConnection::Change(const ipc::Change& change) {
  return Answer(change);
}

absl::Status BrokerConnection::Register(const ipc::Hello& hello) { return Answer(hello).status(); }

absl::Status BrokerConnection::Open(const ipc::Message& open) { return Answer(open).status(); }

void BrokerConnection::GiveBack() {
  for (const ipc::Mapped<ipc::UsagePage>& usage : opened_) {
    usage->memory_left.store(0, std::memory_order_relaxed);
    usage->ended.store(1, std::memory_order_release);
  }
  opened_.clear();
  fd_.Reset();
}

absl::StatusOr<std::string> BrokerConnection::Answer(const ipc::Message& question) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string packet, ipc::Encode(question));
  // If the broker has closed the connection, its reason may already have been received.
  const absl::Status sent = ipc::Send(fd_.get(), packet);
  base::Clock& clock = base::RealClock();
  const Time until = clock.Now() + kPatience;
  std::string text;
  for (;;) {
    absl::StatusOr<ipc::Received> got =
        ipc::ReceiveBefore(fd_.get(), clock, sent.ok() ? until : clock.Now());
    if (!got.ok()) return NoAnswer(sent.ok() ? got.status() : sent);
    if (got->what != ipc::Received::kPacket) {
      return NoAnswer(absl::UnavailableError("it ended the connection"));
    }
    GPUSHARE_ASSIGN_OR_RETURN(const ipc::Message message, ipc::Decode(got->packet));
    if (const auto* refusal = std::get_if<ipc::Refusal>(&message)) {
      return absl::FailedPreconditionError(Printable(refusal->message, ipc::kMostText));
    }
    if (std::holds_alternative<ipc::Welcome>(message)) return text;
    if (std::holds_alternative<ipc::GpuOpened>(message)) {
      // Of the limits page, the usage page and the doorbell.
      if (got->fds.size() != 3)
        return absl::InternalError("a GPU is opened with three descriptors");
      GPUSHARE_ASSIGN_OR_RETURN(ipc::Mapped<ipc::UsagePage> usage,
                                ipc::MapUsage(got->fds[1].get()));
      opened_.push_back(std::move(usage));
      return text;
    }
    const auto* part = std::get_if<ipc::Part>(&message);
    if (part == nullptr || text.size() + part->text.size() > kMostAnswer) {
      return absl::InternalError(absl::StrCat(socket_, ": what answers there is no broker"));
    }
    text += part->text;
    if (part->more == 0) return text;
  }
}

ExitCode FailOfBroker(const char* command, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return Fail(command, kExitNoBroker, status);
    case absl::StatusCode::kInvalidArgument:
      return Fail(command, kExitUsage, status);
    default:
      return Fail(command, kExitFailed, status);
  }
}

}  // namespace gpushare::cli
