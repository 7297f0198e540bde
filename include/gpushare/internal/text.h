// SPDX-License-Identifier: Apache-2.0
// Not part of the API: text on its way to C, where a zero byte ends it.
#ifndef GPUSHARE_INTERNAL_TEXT_H_
#define GPUSHARE_INTERNAL_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gpushare::internal {

// InvalidArgument when C would see only a part of `text`.
inline absl::Status CheckText(const char* field, std::string_view text) {
  const size_t zero = text.find('\0');
  if (zero == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(std::string(field) + ": byte " + std::to_string(zero) + " of " +
                                    std::to_string(text.size()) +
                                    " is zero; text without zero bytes allowed");
}

}  // namespace gpushare::internal

#endif  // GPUSHARE_INTERNAL_TEXT_H_
