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
  // What they get always adds up to all that is used: of less nobody could say who has too much. A third has no end.
  if (std::fabs(shares - 1) <= 0.001) return "";
  return absl::StrCat("the shares of its tenants add up to ",
                      spec::FormatShare(std::round(shares * 1e5) / 1e5), "; 100% is wanted");
}

}  // namespace gpushare::harness
