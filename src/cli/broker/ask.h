// SPDX-License-Identifier: Apache-2.0
// What the command says to a broker that runs, and what it answers.
//
//   GPUSHARE_ASSIGN_OR_RETURN(BrokerConnection broker, BrokerConnection::To(socket));
//   GPUSHARE_ASSIGN_OR_RETURN(const broker::Snapshot now, broker.List());
#ifndef GPUSHARE_CLI_BROKER_ASK_H_
#define GPUSHARE_CLI_BROKER_ASK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "broker/recording.h"
#include "broker/snapshot.h"
#include "cli/exit_code.h"
#include "ipc/message.h"

namespace gpushare::cli {

inline constexpr char kDefaultSocket[] = "/run/gpushare/broker.sock";
// GPUSHARE_BROKER's, else that.
std::string SocketOfEnvironment();

// Errors: Unavailable: there is no broker, or it does not answer, and how to get one. FailedPrecondition, whatever the
// broker itself calls it: it has refused, and why.
class BrokerConnection {
 public:
  // `named_by`: the option or variable that said which.
  static absl::StatusOr<BrokerConnection> To(const std::string& socket,
                                             const char* named_by = "--socket");

  absl::StatusOr<std::string> Ask(const std::string& what);
  absl::StatusOr<broker::Snapshot> List();
  // What happened since the recording that this continues; none: from now on.
  absl::StatusOr<broker::Recording> Trace(std::optional<uint64_t> from = std::nullopt);
  // What it has to say of it; mostly nothing. Of "set": the keys that a new policy has ended.
  absl::StatusOr<std::string> Change(const ipc::Change& change);
  // Whether a process like this may register; it has, until the connection ends.
  absl::Status Register(const ipc::Hello& hello);
  // After that: whether its tenant gets its share of this GPU. It has, until this process ends.
  absl::Status Open(const ipc::Message& open);  // an OpenGpu, or OpenGpuAs

 private:
  BrokerConnection(std::string socket, const char* named_by, base::UniqueFd fd)
      : socket_(std::move(socket)), named_by_(named_by), fd_(std::move(fd)) {}
  absl::StatusOr<std::string> Answer(const ipc::Message& question);
  absl::Status NoAnswer(const absl::Status& why) const;

  std::string socket_;
  const char* named_by_;
  base::UniqueFd fd_;
};

// Says it, and how a command exits for it.
ExitCode FailOfBroker(const char* command, const absl::Status& status);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_ASK_H_
