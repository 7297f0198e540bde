// SPDX-License-Identifier: Apache-2.0
// Replaces daemon.cc in builds without GPUSHARE_BUILD_BROKER.
#include "absl/status/status.h"
#include "cli/broker/daemon.h"
#include "cli/output.h"

namespace gpushare::cli {

namespace {

absl::Status Absent() {
  return absl::UnimplementedError(
      "this gpushare was built without the broker; build it where yaml-cpp and prometheus-cpp are "
      "installed (GPUSHARE_BUILD_BROKER=ON)");
}

}  // namespace

ExitCode RunDaemon(const DaemonOptions& /*options*/) {
  return Fail("broker", kExitFailed, Absent());
}

absl::StatusOr<Configured> ReadConfigured(const std::string& /*config*/) { return Absent(); }

}  // namespace gpushare::cli
