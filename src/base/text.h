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

// What a C function would take for the end of it.
bool HasZeroByte(std::string_view text);

// At most `most` bytes of `text`, then "...", without what would garble a terminal: control characters,
// those that turn the direction of writing, and bytes that are no UTF-8 come as \xNN.
std::string Printable(std::string_view text, size_t most);

// The same in quotes, short whatever was given.
std::string Quoted(std::string_view text);

// As a string of JSON, with its quotes; what is no UTF-8 becomes U+FFFD.
std::string JsonQuoted(std::string_view text);

}  // namespace gpushare

#endif  // GPUSHARE_BASE_TEXT_H_
