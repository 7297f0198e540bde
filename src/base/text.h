// SPDX-License-Identifier: Apache-2.0
// Text from outside: whether it is UTF-8, and how it is shown in a message.
//
//   return absl::InvalidArgumentError("no policy is called " + Quoted(name));   // no policy is called 'turbo\x0a'
#ifndef GPUSHARE_BASE_TEXT_H_
#define GPUSHARE_BASE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace gpushare {

// Length of the UTF-8 sequence at the start of `text`, which is not empty; 0 when it is none (overlong
// forms, surrogates and code points past U+10FFFF are none).
size_t Utf8Length(std::string_view text);

bool IsUtf8(std::string_view text);

// Whether `text` contains a NUL, where a C function would take it to end.
bool HasZeroByte(std::string_view text);

// At most `most` bytes of `text`, then "...". What would garble a terminal is shown as \xNN: control
// characters, characters that change the direction of writing, and bytes that are not UTF-8.
std::string Printable(std::string_view text, size_t most);

// Printable() in quotes, cut to a fixed length.
std::string Quoted(std::string_view text);

// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string JsonQuoted(std::string_view text);

}  // namespace gpushare

#endif  // GPUSHARE_BASE_TEXT_H_
