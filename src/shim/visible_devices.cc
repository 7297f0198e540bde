// SPDX-License-Identifier: Apache-2.0
#include "shim/visible_devices.h"

namespace gpushare::shim {
namespace {

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<unsigned> Number(std::string_view text) {
  if (text.empty() || text.size() > 6) return std::nullopt;
  unsigned number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<unsigned>(c - '0');
  }
  return number;
}

bool IsUuid(std::string_view text) {
  return text.rfind("GPU-", 0) == 0 || text.rfind("MIG-", 0) == 0;
}

}  // namespace

std::optional<int> PlaceAmong(std::string_view list, unsigned index, unsigned count,
                              std::string_view uuid) {
  for (int ordinal = 0;; ++ordinal) {
    const size_t comma = list.find(',');
    const std::string_view entry = Trimmed(list.substr(0, comma));
    if (IsUuid(entry)) {
      // A prefix is enough, as it is for the driver.
      if (uuid.substr(0, entry.size()) == entry) return ordinal;
    } else {
      const std::optional<unsigned> number = Number(entry);
      if (!number.has_value() || *number >= count) return std::nullopt;
      if (*number == index) return ordinal;
    }
    if (comma == std::string_view::npos) return std::nullopt;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace gpushare::shim
