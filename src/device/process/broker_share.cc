// SPDX-License-Identifier: Apache-2.0
#include "device/process/broker_share.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/program.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "device/process/process_spec.h"

namespace gpushare::device {
namespace {

constexpr char kBroker[] = "GPUSHARE_BROKER";
constexpr char kOnLoss[] = "GPUSHARE_ON_BROKER_LOSS";
constexpr char kTenant[] = "GPUSHARE_TENANT";
constexpr size_t kMostOfAName = 256;

absl::StatusOr<bool> GoesOnWithoutBroker() {
  const std::string text = base::GetEnv(kOnLoss).value_or("open");
  if (text == "open" || text == "closed") return text == "open";
  return absl::InvalidArgumentError(
      absl::StrCat(kOnLoss, ": ", Quoted(text), " given; allowed: open, closed"));
}

}  // namespace

BrokerOptions BrokerOptions::OfEnvironment() {
  std::string socket = base::GetEnv(kBroker).value_or("");
  if (socket == kNoBroker) socket.clear();
  return {.socket = std::move(socket),
          .tenant = base::GetEnv(kTenant).value_or(""),
          .spec = TextOfEnvironment(0),
          .of_environment = true};
}

absl::Status BrokerShares::Connect(base::Clock& clock) {
  if (session_ != nullptr) return absl::OkStatus();
  client::SessionOptions options;
  GPUSHARE_ASSIGN_OR_RETURN(options.open_on_loss, GoesOnWithoutBroker());
  GPUSHARE_ASSIGN_OR_RETURN(
      session_, client::Session::Connect(options_.socket,
                                         {.tenant = options_.tenant,
                                          .program = Printable(base::ThisProgram(), kMostOfAName),
                                          .spec = options_.spec},
                                         clock, options));
  return absl::OkStatus();
}

absl::StatusOr<BrokerShares::Share> BrokerShares::ShareOn(base::Clock& clock, int ordinal,
                                                          const driver::Driver::DeviceInfo& info,
                                                          uint64_t memory) {
  GPUSHARE_RETURN_IF_ERROR(Connect(clock));
  Share share;
  std::optional<std::string> own;
  if (options_.of_environment) own = TextOfEnvironment(ordinal);
  if (own == options_.spec) own.reset();
  GPUSHARE_ASSIGN_OR_RETURN(
      share.session,
      session_->OpenGpu(info.uuid, memory, static_cast<uint32_t>(info.sm_count), std::move(own)));
  const absl::StatusOr<gpushare_spec> spec = ParseProcessSpec(share.session->spec());
  if (!spec.ok()) {
    return absl::Status(spec.status().code(),
                        absl::StrCat("the broker's share: ", spec.status().message()));
  }
  share.spec = *spec;
  // The broker divides and lends the memory that the tenant's processes share.
  share.spec.set &=
      ~(GPUSHARE_SPEC_MEMORY_SHARE | GPUSHARE_SPEC_MEMORY_CAP | GPUSHARE_SPEC_MEMORY_CAP_SHARE);
  share.spec.set |= GPUSHARE_SPEC_MEMORY;
  share.spec.memory = std::min(share.session->Limit(), memory);
  return share;
}

}  // namespace gpushare::device
