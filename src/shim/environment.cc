// SPDX-License-Identifier: Apache-2.0
#include "shim/environment.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/env.h"
#include "base/limit_variables.h"
#include "device/process/process_spec.h"

namespace gpushare::shim {
namespace {

constexpr char kSpec[] = "GPUSHARE_SPEC", kOverQuota[] = "GPUSHARE_OVER_QUOTA";
// A program that waits for memory that only it could free would wait forever. After this time the allocation is refused.
constexpr absl::Duration kLongestWait = absl::Hours(1);

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

absl::StatusOr<Nanos> OverQuotaWait() {
  const std::string value = base::GetEnv(kOverQuota).value_or("fail");
  if (value == "fail") return Nanos(0);
  constexpr std::string_view kWait = "wait=";
  absl::Duration wait;
  if (!value.starts_with(kWait) || !absl::ParseDuration(value.substr(kWait.size()), &wait) ||
      wait <= absl::ZeroDuration() || wait > kLongestWait) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOverQuota, ": '", value,
                     "' given; allowed: fail, or wait= and a time of more than 0 and at most 1h, "
                     "such as wait=30s"));
  }
  return Nanos(absl::ToInt64Nanoseconds(wait));
}

}  // namespace gpushare::shim
