// SPDX-License-Identifier: Apache-2.0
#include "shim/environment.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/limit_variables.h"
#include "device/process/process_spec.h"

namespace gpushare::shim {
namespace {

constexpr char kSpec[] = "GPUSHARE_SPEC";

}  // namespace

absl::StatusOr<device::Runtime::Share> ShareOfEnvironment(int ordinal) {
  const std::string own = base::GetEnv(kSpec).value_or("");
  std::vector<base::Limit> used;
  const std::string text = base::AddLimits(own, base::FindLimits(ordinal), &used);
  const absl::StatusOr<gpushare_spec> spec = device::ParseProcessSpec(text);
  if (!spec.ok()) {
    const std::string wrong = base::WrongLimit(
        used, [](const std::string& each) { return device::ParseProcessSpec(each).ok(); });
    if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
    std::string from = own.empty() ? "" : kSpec;
    for (const base::Limit& limit : used) {
      absl::StrAppend(&from, from.empty() ? "" : ", ", limit.variable);
    }
    return absl::Status(spec.status().code(), absl::StrCat(from, ": ", spec.status().message()));
  }
  device::Runtime::Share share{.spec = *spec};
  // A limit set for another product may be the whole card's memory, which is more than can be guaranteed.
  for (const base::Limit& limit : used) share.at_most = share.at_most || limit.key == "memory";
  return share;
}

}  // namespace gpushare::shim
