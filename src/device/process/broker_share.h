// SPDX-License-Identifier: Apache-2.0
// A process's shares of GPUs when a broker divides them.
//
//   BrokerShares broker(BrokerOptions::OfEnvironment());                          // must outlive its GPUs
//   GPUSHARE_ASSIGN_OR_RETURN(Share share, broker.ShareOn(clock, ordinal, info, memory));
//
// The share that the broker grants is in force; the spec is what the process asks for if its tenant may ask.
// Threading: one caller at a time.
#ifndef GPUSHARE_DEVICE_PROCESS_BROKER_SHARE_H_
#define GPUSHARE_DEVICE_PROCESS_BROKER_SHARE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "client/session.h"
#include "driver/driver.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

struct BrokerOptions {
  static constexpr char kNoBroker[] = "none";  // in place of a socket

  std::string socket;  // empty: no broker
  std::string tenant;
  std::string spec;
  // The spec comes from the environment and is the one for the first GPU; for others the environment may have another.
  bool of_environment = false;

  // From GPUSHARE_BROKER, GPUSHARE_TENANT, and the environment's spec for the first GPU.
  static BrokerOptions OfEnvironment();
};

class BrokerShares {
 public:
  explicit BrokerShares(BrokerOptions options) : options_(std::move(options)) {}

  // Connects, once; ShareOn() connects if this was not called. Unavailable: the broker is not there, or does not answer. A
  // refusal has the broker's own code.
  absl::Status Connect(base::Clock& clock);
  // The process's tenant at the broker; empty before Connect().
  std::string tenant() const { return session_ == nullptr ? "" : session_->tenant(); }

  struct Share {
    std::shared_ptr<client::GpuSession> session;
    gpushare_spec spec;  // `memory` is the most that may be held now
  };
  // The share of a GPU that has `memory` to promise. Returns the same each time.
  absl::StatusOr<Share> ShareOn(base::Clock& clock, int ordinal,
                                const driver::Driver::DeviceInfo& info, uint64_t memory);

 private:
  const BrokerOptions options_;
  std::unique_ptr<client::Session> session_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_BROKER_SHARE_H_
