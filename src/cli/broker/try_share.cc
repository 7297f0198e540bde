// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/try_share.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/fd_io.h"
#include "base/unique_fd.h"
#include "broker/json.h"
#include "cli/broker/ask.h"
#include "spec/spec.h"

namespace gpushare::cli {
namespace {

// The shares as JSON; "" if the broker does not tell.
absl::StatusOr<std::string> Ask(const std::string& broker, const char* named_by,
                                const ipc::Hello& hello, const std::vector<ipc::Message>& gpus) {
  absl::StatusOr<BrokerConnection> connection = BrokerConnection::To(broker, named_by);
  absl::Status given = connection.status();
  if (given.ok()) given = connection->Register(hello);
  for (const ipc::Message& gpu : gpus) {
    if (given.ok()) given = connection->Open(gpu);
  }
  absl::StatusOr<std::string> own = std::string();
  if (given.ok()) own = connection->Ask("own");
  if (connection.ok()) connection->GiveBack();
  if (!given.ok()) return given;
  return own.ok() ? *std::move(own) : "";
}

}  // namespace

// A process keeps what it has opened until it ends, and this one may become the program by exec: so a child process asks.
absl::StatusOr<std::vector<broker::Share>> TryShare(const std::string& broker, const char* named_by,
                                                    const ipc::Hello& hello,
                                                    const std::vector<ipc::Message>& gpus) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe2");
  base::UniqueFd answer(ends[0]), says(ends[1]);
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork");
  if (child == 0) {
    const absl::StatusOr<std::string> own = Ask(broker, named_by, hello, gpus);
    const std::string text =
        own.ok() ? *own : std::string(own.status().message().substr(0, ipc::kMostText));
    // An error means that the parent has ended.
    static_cast<void>(
        base::WriteAll(says.get(), absl::StrCat(static_cast<int>(own.status().code()), " ", text)));
    _exit(0);
  }
  says.Reset();
  std::string text;
  static_cast<void>(base::ReadAll(answer.get(), SIZE_MAX, &text));
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  int code = 0;
  const size_t blank = text.find(' ');
  if (!absl::SimpleAtoi(text.substr(0, blank), &code)) {
    return absl::UnavailableError("whether the broker has such a share is not known: asking ended");
  }
  const std::string rest = text.substr(blank + 1);
  if (code != 0) return absl::Status(static_cast<absl::StatusCode>(code), rest);
  if (rest.empty()) return std::vector<broker::Share>();
  absl::StatusOr<broker::Snapshot> own = broker::SnapshotFromJson(rest);
  if (!own.ok()) return own.status();
  return std::move(own->shares);
}

const broker::Share* ShareOn(const std::vector<broker::Share>& shares, const std::string& gpu) {
  for (const broker::Share& share : shares) {
    if (share.gpu == gpu) return &share;
  }
  return nullptr;
}

bool Counts(const std::string& asked, const broker::Share& share) {
  const absl::StatusOr<gpushare_spec> spec = spec::ParseSpec(asked);
  return spec.ok() && spec::FormatSpec(*spec) == share.spec;
}

}  // namespace gpushare::cli
