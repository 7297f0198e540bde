// SPDX-License-Identifier: Apache-2.0
// A program's shares when a broker has them: GPUSHARE_BROKER is its socket.
//
//   BrokerShares broker;                                                            // stays while the process does
//   GPUSHARE_ASSIGN_OR_RETURN(Runtime::Share share, broker.ShareOn(runtime, 0));    // as the environment's
//
// What the broker says is in force; GPUSHARE_SPEC is what the program asks for, where its tenant may.
// Threading: one caller at a time.
#ifndef GPUSHARE_SHIM_BROKER_H_
#define GPUSHARE_SHIM_BROKER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session.h"
#include "device/runtime.h"

namespace gpushare::shim {

class BrokerShares {
 public:
  // Whether the environment names a broker.
  static bool Wanted();
  // FailedPrecondition: the broker is not there, or does not know the tenant, and nothing runs without its limits.
  absl::StatusOr<device::Runtime::Share> ShareOn(const device::Runtime& runtime, int ordinal);

 private:
  absl::Status Connect(const device::Runtime& runtime);
  absl::StatusOr<device::Runtime::Share> Open(const device::Runtime& runtime, int ordinal);

  std::unique_ptr<client::Session> session_;
};

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_BROKER_H_
