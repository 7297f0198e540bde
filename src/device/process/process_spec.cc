// SPDX-License-Identifier: Apache-2.0
#include "device/process/process_spec.h"

#include "absl/status/status.h"
#include "base/env.h"
#include "base/limit_variables.h"
#include "base/status_macros.h"
#include "spec/spec.h"

namespace gpushare::device {

std::string TextOfEnvironment(int ordinal) {
  return base::AddLimits(base::GetEnv("GPUSHARE_SPEC").value_or(""), base::FindLimits(ordinal));
}

absl::StatusOr<gpushare_spec> ParseProcessSpec(const std::string& text) {
  GPUSHARE_ASSIGN_OR_RETURN(gpushare_spec spec, spec::ParseSpec(text));
  GPUSHARE_RETURN_IF_ERROR(spec::ValidateSpec(spec));
  // A program makes its own contexts, and its process has no other tenants to isolate it from.
  if ((spec.set & GPUSHARE_SPEC_ISOLATION) && spec.isolation != GPUSHARE_ISOLATION_SHARED &&
      spec.isolation != GPUSHARE_ISOLATION_PROCESS) {
    return absl::InvalidArgumentError("isolation: 'shared' or 'process' only");
  }
  spec.set &= ~uint32_t{GPUSHARE_SPEC_ISOLATION};
  return spec;
}

}  // namespace gpushare::device
