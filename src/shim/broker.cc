// SPDX-License-Identifier: Apache-2.0
#include "shim/broker.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "device/gpu.h"
#include "device/virtual_device.h"
#include "gate/engine.h"
#include "shim/environment.h"

namespace gpushare::shim {
namespace {

constexpr char kBroker[] = "GPUSHARE_BROKER";
constexpr char kOnLoss[] = "GPUSHARE_ON_BROKER_LOSS";
constexpr char kTenant[] = "GPUSHARE_TENANT";
constexpr size_t kMostOfAName = 256;

std::string ProgramName() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return "";
  return Printable(std::string_view(path.data(), static_cast<size_t>(length)), kMostOfAName);
}

absl::StatusOr<bool> GoesOnWithoutBroker() {
  const std::string text = base::GetEnv(kOnLoss).value_or("open");
  if (text == "open" || text == "closed") return text == "open";
  return absl::InvalidArgumentError(
      absl::StrCat(kOnLoss, ": ", Quoted(text), " given; allowed: open, closed"));
}

// The share's memory is the session's from its first byte on, and the engine hears when there is more time.
void Connect(const std::shared_ptr<client::GpuSession>& session, device::VirtualDevice& device) {
  device.account().SetSource(session);
  session->SetAccount(&device.account());
  session->SetFigures([gate = &device.gate()] {
    const gate::GateStats stats = gate->stats();
    return client::GpuSession::Figures{
        .launches = stats.launches, .waits = stats.waits, .throttled = stats.throttled};
  });
  session->SetOnTime([engine = &device.gpu().engine()] { engine->Supplied(); });
}

}  // namespace

bool BrokerShares::Wanted() { return base::GetEnv(kBroker).has_value(); }

absl::Status BrokerShares::Connect(const device::Runtime& runtime) {
  client::SessionOptions options;
  GPUSHARE_ASSIGN_OR_RETURN(options.open_on_loss, GoesOnWithoutBroker());
  GPUSHARE_ASSIGN_OR_RETURN(session_,
                            client::Session::Connect(base::GetEnv(kBroker).value_or(""),
                                                     {.tenant = base::GetEnv(kTenant).value_or(""),
                                                      .program = ProgramName(),
                                                      .spec = TextOfEnvironment(0)},
                                                     runtime.clock(), options));
  return absl::OkStatus();
}

absl::StatusOr<device::Runtime::Share> BrokerShares::ShareOn(const device::Runtime& runtime,
                                                             int ordinal) {
  absl::StatusOr<device::Runtime::Share> share = Open(runtime, ordinal);
  if (!absl::IsUnavailable(share.status()) && !absl::IsNotFound(share.status())) return share;
  // A program is to hear that it cannot run, not that there is no GPU.
  return absl::FailedPreconditionError(share.status().message());
}

absl::StatusOr<device::Runtime::Share> BrokerShares::Open(const device::Runtime& runtime,
                                                          int ordinal) {
  if (session_ == nullptr) GPUSHARE_RETURN_IF_ERROR(Connect(runtime));
  GPUSHARE_ASSIGN_OR_RETURN(const driver::Driver::DeviceInfo info,
                            runtime.driver().Describe(ordinal));
  GPUSHARE_ASSIGN_OR_RETURN(const uint64_t reserve, runtime.ReserveOf(ordinal, info.total_memory));
  const uint64_t memory = info.total_memory - reserve;
  GPUSHARE_ASSIGN_OR_RETURN(
      const std::shared_ptr<client::GpuSession> session,
      session_->OpenGpu(info.uuid, memory, static_cast<uint32_t>(info.sm_count)));
  const absl::StatusOr<gpushare_spec> spec = ParseProcessSpec(session->spec());
  if (!spec.ok()) {
    return absl::Status(spec.status().code(),
                        absl::StrCat("the broker's share: ", spec.status().message()));
  }
  device::Runtime::Share share{.spec = *spec, .at_most = true};
  // What the tenant's processes have in common is the broker's to divide, and to lend: here it is an account that grows up
  // to all of it.
  share.spec.set &=
      ~(GPUSHARE_SPEC_MEMORY_SHARE | GPUSHARE_SPEC_MEMORY_CAP | GPUSHARE_SPEC_MEMORY_CAP_SHARE);
  share.spec.set |= GPUSHARE_SPEC_MEMORY;
  share.spec.memory = std::min(session->Limit(), memory);
  share.supply = session;
  share.made = [session](device::VirtualDevice& device) { shim::Connect(session, device); };
  return share;
}

}  // namespace gpushare::shim
