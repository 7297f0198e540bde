// SPDX-License-Identifier: Apache-2.0
#include "cli/broker_clock.h"

#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/env.h"

namespace gpushare::cli {

void SetClockBesideABroker() {
  const std::string given = base::GetEnv("GPUSHARE_SIM").value_or("");
  if (absl::StrContains(given, "clock=") || absl::StrContains(given, "shared=")) return;
  setenv("GPUSHARE_SIM", absl::StrCat(given, given.empty() ? "" : ",", "clock=wall").c_str(), 1);
}

}  // namespace gpushare::cli
