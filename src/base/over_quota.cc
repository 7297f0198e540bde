// SPDX-License-Identifier: Apache-2.0
#include "base/over_quota.h"

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/env.h"
#include "base/text.h"

namespace gpushare::base {
namespace {

constexpr char kOverQuota[] = "GPUSHARE_OVER_QUOTA";
// A program that waits for memory that only it could free would wait forever. After this time the allocation is refused.
constexpr absl::Duration kLongestWait = absl::Hours(1);

}  // namespace

absl::StatusOr<Nanos> OverQuotaWait() {
  const std::string value = GetEnv(kOverQuota).value_or("fail");
  if (value == "fail") return Nanos(0);
  constexpr std::string_view kWait = "wait=";
  absl::Duration wait;
  if (!value.starts_with(kWait) || !absl::ParseDuration(value.substr(kWait.size()), &wait) ||
      wait <= absl::ZeroDuration() || wait > kLongestWait) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOverQuota, ": ", Quoted(value),
                     " given; allowed: fail, or wait= and a time of more than 0 and at most 1h, "
                     "such as wait=30s"));
  }
  return Nanos(absl::ToInt64Nanoseconds(wait));
}

}  // namespace gpushare::base
