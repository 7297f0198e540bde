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
  GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec spec, spec::ParseSpec(text));
  GPUSHARE_RETURN_IF_ERROR(spec::ValidateSpec(spec));
  // A program makes its contexts itself.
  if ((spec.set & GPUSHARE_SPEC_ISOLATION) && spec.isolation != GPUSHARE_ISOLATION_SHARED) {
    return absl::InvalidArgumentError("isolation: 'shared' only");
  }
  return spec;
}

}  // namespace gpushare::device
