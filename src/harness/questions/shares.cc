// SPDX-License-Identifier: Apache-2.0
#include "harness/questions/shares.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "spec/text.h"

namespace gpushare::harness {

std::string CheckShares(const Case& one, const char* question) {
  double shares = 0;
  for (const Tenant& tenant : one.tenants) {
    if (!tenant.ask.share.has_value()) {
      return absl::StrCat("each tenant needs 'share' for the question '", question, "'");
    }
    shares += *tenant.ask.share;
  }
  // Shares of the time used always add up to 1, so the shares asked for must too. The tolerance allows for fractions such as 1/3.
  if (std::fabs(shares - 1) <= 0.001) return "";
  return absl::StrCat("the shares of its tenants add up to ",
                      spec::FormatShare(std::round(shares * 1e5) / 1e5), "; 100% is wanted");
}

}  // namespace gpushare::harness
