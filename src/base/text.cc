// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <algorithm>
#include <cstdio>

namespace gpushare {
namespace {

// Whether a whole UTF-8 sequence would garble a terminal. U+0080 to U+009F control terminals as their 7-bit forms do.
bool Garbles(std::string_view sequence) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  switch (sequence.size()) {
    case 1:
      return at(0) < 0x20 || at(0) == 0x7f;
    case 2:
      return at(0) == 0xc2 && at(1) < 0xa0;
    case 3:  // U+200E and U+200F, U+2028 to U+202E, U+2066 to U+2069
      return at(0) == 0xe2 && ((at(1) == 0x80 && (at(2) == 0x8e || at(2) == 0x8f ||
                                                  (at(2) >= 0xa8 && at(2) <= 0xae))) ||
                               (at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9));
    default:
      return false;
  }
}

}  // namespace

size_t Utf8Length(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0u) != 0x80u) return 0;
  }
  const unsigned second = at(1);
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second > 0x8f) return 0;
  return length;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool HasZeroByte(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char each) { return each == '\0'; });
}

std::string Printable(std::string_view text, size_t most) {
  std::string shown;
  size_t i = 0;
  while (i < text.size()) {
    const size_t length = Utf8Length(text.substr(i));
    const size_t step = length == 0 ? 1 : length;
    if (i + step > most) break;
    const std::string_view sequence = text.substr(i, step);
    if (length > 0 && !Garbles(sequence)) {
      shown += sequence;
    } else {
      for (const char c : sequence) {
        char hex[8];
        std::snprintf(hex, sizeof(hex), "\\x%02x",
                      static_cast<unsigned>(static_cast<unsigned char>(c)));
        shown += hex;
      }
    }
    i += step;
  }
  return shown + (i < text.size() ? "..." : "");
}

std::string Quoted(std::string_view text) { return "'" + Printable(text, 40) + "'"; }

std::string JsonQuoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char c = text.front();
    const auto byte = static_cast<unsigned char>(c);
    size_t length = 1;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
      out += escaped;
    } else if (length = Utf8Length(text); length > 0) {
      out += text.substr(0, length);
    } else {
      out += "\\ufffd";  // a file's name may hold any byte, JSON may not
      length = 1;
    }
    text.remove_prefix(length);
  }
  return out + '"';
}

}  // namespace gpushare
