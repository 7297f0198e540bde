// SPDX-License-Identifier: Apache-2.0
// What the JSON library says is wrong with a text, in words for people.
#ifndef GPUSHARE_HARNESS_JSON_ERROR_H_
#define GPUSHARE_HARNESS_JSON_ERROR_H_

#include <exception>
#include <string>

#include "base/text.h"

namespace gpushare::harness {

// Without the first word of "[json.exception.out_of_range.403] key 'case' not found", printable and bounded: the text that is wrong may
// have any size.
inline std::string WhyWrong(const std::exception& error) {
  const std::string why = error.what();
  const size_t name_end = why.find("] ");
  return Printable(name_end == std::string::npos ? why : why.substr(name_end + 2), 256);
}

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_JSON_ERROR_H_
