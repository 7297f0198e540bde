// SPDX-License-Identifier: Apache-2.0
// The C ABI: specs.
#include "spec/spec.h"

#include "device/abi/c_abi.h"
#include "sched/policies.h"

using namespace gpushare;
using namespace gpushare::device;

gpushare_status gpushare_spec_parse(const char* text, size_t length, gpushare_spec* spec) {
  return Guard([&]() -> absl::Status {
    if (text == nullptr && length > 0) return absl::InvalidArgumentError("'text' is null");
    GPUSHARE_ASSIGN_OR_RETURN(
        const gpushare_spec parsed,
        spec::ParseSpec(std::string_view(text == nullptr ? "" : text, length)));
    return WriteStruct(spec, parsed, "spec");
  });
}

gpushare_status gpushare_spec_validate(const gpushare_spec* spec) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec known, ReadStruct(spec, "spec"));
    return spec::ValidateSpec(known);
  });
}

gpushare_status gpushare_spec_format(const gpushare_spec* spec, char* text, size_t size,
                                     size_t* needed) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec known, ReadStruct(spec, "spec"));
    GPUSHARE_RETURN_IF_ERROR(spec::ValidateSpec(known));
    const std::string formatted = spec::FormatSpec(known);
    if (needed != nullptr) *needed = formatted.size() + 1;
    if (text == nullptr || size < formatted.size() + 1) {
      return absl::OutOfRangeError(absl::StrCat("the text needs ", formatted.size() + 1, " bytes, ",
                                                text == nullptr ? 0 : size, " given"));
    }
    std::memcpy(text, formatted.c_str(), formatted.size() + 1);
    return absl::OkStatus();
  });
}

const char* gpushare_policy_name(size_t i) {
  const auto policies = sched::Policies();
  return i < policies.size() ? policies[i].name : nullptr;
}
