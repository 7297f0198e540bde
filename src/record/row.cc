// SPDX-License-Identifier: Apache-2.0
#include "record/row.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace gpushare::record {
namespace {

constexpr size_t kMostNameBytes = 1024;
constexpr uint64_t kMostSms = 1'000'000;

// FNV-1a, so that the hash is the same on every machine.
uint64_t NumberOf(std::string_view text) {
  uint64_t number = 0xcbf29ce484222325u;
  for (const char c : text) number = (number ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return number;
}

}  // namespace

std::string NameOf(std::string_view name) {
  if (name.empty()) return "unnamed";
  std::string taken;
  for (size_t i = 0; i < name.size();) {
    const auto byte = static_cast<unsigned char>(name[i]);
    const size_t length = Utf8Length(name.substr(i));
    if (length == 0 || byte < 0x20 || byte == 0x7f) {
      taken.push_back('?');
      ++i;
    } else {
      taken.append(name.substr(i, length));
      i += length;
    }
  }
  // The reader removes one pair of quotes.
  const bool quoted = taken.size() >= 2 && taken.front() == '"' && taken.back() == '"';
  if (taken.size() + (quoted ? 2 : 0) > kMostNameBytes) {
    const std::string end = absl::StrCat("~", absl::Hex(NumberOf(name), absl::kZeroPad16));
    size_t keep = kMostNameBytes - end.size();
    // Do not cut within a character.
    while ((static_cast<unsigned char>(taken[keep]) & 0xc0) == 0x80) --keep;
    taken.resize(keep);
    return taken + end;
  }
  return quoted ? absl::StrCat("\"", taken, "\"") : taken;
}

std::string RowOf(std::string_view name, uint64_t sms, Nanos duration) {
  return absl::StrCat(NameOf(name), ",unknown,", std::clamp<uint64_t>(sms, 1, kMostSms), ",",
                      std::clamp(duration, Nanos(1), kLongest).count(), "\n");
}

}  // namespace gpushare::record
