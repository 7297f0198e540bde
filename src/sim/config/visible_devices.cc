// SPDX-License-Identifier: Apache-2.0
#include "sim/config/visible_devices.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

#include "sim/config/identity.h"

namespace gpushare::sim {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The device that the entry names; -1 if there is none.
int Named(std::string_view entry, int count) {
  int number = -1;
  const char* const end = entry.data() + entry.size();
  const std::from_chars_result read = std::from_chars(entry.data(), end, number);
  if (read.ec == std::errc() && read.ptr == end) return number < count ? number : -1;
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  int found = -1;
  for (int i = 0; i < count && entry.size() > 4; ++i) {
    const std::string uuid = UuidText(UuidOf(i).data());
    if (entry.size() > uuid.size()) continue;
    if (!std::equal(entry.begin(), entry.end(), uuid.begin(), same)) continue;
    if (found >= 0) return -1;  // the prefix is ambiguous
    found = i;
  }
  return found;
}

}  // namespace

std::vector<int> VisibleDevices(std::string_view list, int count) {
  std::vector<int> visible;
  for (;;) {
    const size_t comma = list.find(',');
    const int number = Named(Trimmed(list.substr(0, comma)), count);
    if (number < 0 || std::find(visible.begin(), visible.end(), number) != visible.end()) break;
    visible.push_back(number);
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return visible;
}

}  // namespace gpushare::sim
