// SPDX-License-Identifier: Apache-2.0
// Finds out which share a broker would give to a program, before the program starts.
#ifndef GPUSHARE_CLI_BROKER_TRY_SHARE_H_
#define GPUSHARE_CLI_BROKER_TRY_SHARE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/snapshot.h"
#include "ipc/message.h"

namespace gpushare::cli {

// Registers as `hello` and opens `gpus` (each an OpenGpu or OpenGpuAs), as a program does at its first driver call, and leaves nothing
// behind. Returns the shares in force for its tenant; none if the broker does not tell. Errors and `named_by` are those of
// BrokerConnection.
absl::StatusOr<std::vector<broker::Share>> TryShare(const std::string& broker, const char* named_by,
                                                    const ipc::Hello& hello,
                                                    const std::vector<ipc::Message>& gpus);

// The share on `gpu`; null if there is none.
const broker::Share* ShareOn(const std::vector<broker::Share>& shares, const std::string& gpu);

// Whether `asked` is the spec in force for the share. For a listed tenant the configuration's spec is in force instead.
bool Counts(const std::string& asked, const broker::Share& share);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_TRY_SHARE_H_
