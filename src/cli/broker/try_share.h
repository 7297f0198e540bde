// SPDX-License-Identifier: Apache-2.0
// What a broker has for a program here, before there is the program.
#ifndef GPUSHARE_CLI_BROKER_TRY_SHARE_H_
#define GPUSHARE_CLI_BROKER_TRY_SHARE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "broker/snapshot.h"
#include "ipc/message.h"

namespace gpushare::cli {

// Registers as `hello` and opens `gpus` (each an OpenGpu or OpenGpuAs), as a program's first call of the driver does, and leaves nothing behind. Answers
// the shares of its tenant as they are in force; none from a broker that does not say. Errors are BrokerConnection's;
// `named_by` as there.
absl::StatusOr<std::vector<broker::Share>> TryShare(const std::string& broker, const char* named_by,
                                                    const ipc::Hello& hello,
                                                    const std::vector<ipc::Message>& gpus);

// That of `gpu`; null: there is none.
const broker::Share* ShareOn(const std::vector<broker::Share>& shares, const std::string& gpu);

// Whether a spec that is asked for is what a share has: a tenant that is listed has the configuration's.
bool Counts(const std::string& asked, const broker::Share& share);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_BROKER_TRY_SHARE_H_
