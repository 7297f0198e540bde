// SPDX-License-Identifier: Apache-2.0
// A process's shares when a broker has them.
//
//   BrokerShares broker(BrokerOptions::OfEnvironment());                          // stays while its GPUs do
//   GPUSHARE_ASSIGN_OR_RETURN(Share share, broker.ShareOn(clock, ordinal, info, memory));
//
// What the broker says is in force; the spec is what the process asks for, where its tenant may.
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

  std::string socket;  // empty: there is none
  std::string tenant;
  std::string spec;
  // The spec is what the environment says of the first GPU; of another it may say something else.
  bool of_environment = false;

  // GPUSHARE_BROKER, GPUSHARE_TENANT, and what the environment says of the first GPU's share.
  static BrokerOptions OfEnvironment();
};

class BrokerShares {
 public:
  explicit BrokerShares(BrokerOptions options) : options_(std::move(options)) {}

  // Once; what ShareOn() does when it was not done before. Unavailable: the broker is not there, or does not answer.
  // What it refuses comes with its own code.
  absl::Status Connect(base::Clock& clock);
  // Who the process is to the broker; empty before Connect().
  std::string tenant() const { return session_ == nullptr ? "" : session_->tenant(); }

  struct Share {
    std::shared_ptr<client::GpuSession> session;
    gpushare_spec spec;  // its memory: what may be held at most now
  };
  // Of a GPU that has `memory` to promise; the same each time.
  absl::StatusOr<Share> ShareOn(base::Clock& clock, int ordinal,
                                const driver::Driver::DeviceInfo& info, uint64_t memory);

 private:
  const BrokerOptions options_;
  std::unique_ptr<client::Session> session_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_PROCESS_BROKER_SHARE_H_
