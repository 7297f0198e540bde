// SPDX-License-Identifier: Apache-2.0
// The command's connection to a running broker.
//
//   GPUSHARE_ASSIGN_OR_RETURN(BrokerConnection broker, BrokerConnection::To(socket));
//   GPUSHARE_ASSIGN_OR_RETURN(const broker::Snapshot now, broker.List());
#ifndef GPUSHARE_CLI_BROKER_ASK_H_
#define GPUSHARE_CLI_BROKER_ASK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "broker/recording.h"
#include "broker/snapshot.h"
#include "cli/exit_code.h"
#include "ipc/message.h"
#include "ipc/page.h"

namespace gpushare::cli {

inline constexpr char kDefaultSocket[] = "/run/gpushare/broker.sock";
// GPUSHARE_BROKER, else kDefaultSocket.
std::string SocketOfEnvironment();

// Errors. Unavailable: there is no broker, or it does not answer, and how to start one. FailedPrecondition: the broker has refused,
// and why, whatever code the broker used.
class BrokerConnection {
 public:
  // `named_by` is the option or variable that named the socket, for messages.
  static absl::StatusOr<BrokerConnection> To(const std::string& socket,
                                             const char* named_by = "--socket");

  absl::StatusOr<std::string> Ask(const std::string& what);
  absl::StatusOr<broker::Snapshot> List();
  // The events since `from`, the end of an earlier recording; without it, starts recording now.
  absl::StatusOr<broker::Recording> Trace(std::optional<uint64_t> from = std::nullopt);
  // Makes the change and returns the broker's remarks, usually none. For "set", the keys that a new policy has removed.
  absl::StatusOr<std::string> Change(const ipc::Change& change);
  // Registers this process for as long as the connection lasts; tells whether it may.
  absl::Status Register(const ipc::Hello& hello);
  // After Register(): opens its tenant's share of a GPU, until this process ends or GiveBack().
  absl::Status Open(const ipc::Message& open);  // an OpenGpu, or OpenGpuAs
  // Ends what was opened, with the word that nothing of it is held. Else the broker counts it until the driver may have freed it.
  void GiveBack();

 private:
  BrokerConnection(std::string socket, const char* named_by, base::UniqueFd fd)
      : socket_(std::move(socket)), named_by_(named_by), fd_(std::move(fd)) {}
  absl::StatusOr<std::string> Answer(const ipc::Message& question);
  absl::Status NoAnswer(const absl::Status& why) const;

  std::string socket_;
  const char* named_by_;
  base::UniqueFd fd_;
  std::vector<ipc::Mapped<ipc::UsagePage>> opened_;
};

// Prints the error and returns the exit code for it.
ExitCode FailOfBroker(const char* command, const absl::Status& status);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_ASK_H_
