// SPDX-License-Identifier: Apache-2.0
// Finds the name that a mistyped word probably means.
//
//   NearestOf("lsit", {"list", "top"}) == "list"
#ifndef GPUSHARE_CLI_NEAREST_H_
#define GPUSHARE_CLI_NEAREST_H_

#include <string>
#include <vector>

namespace gpushare::cli {

// "" if `word` is one of the names or resembles none.
std::string NearestOf(const std::string& word, const std::vector<std::string>& names);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_NEAREST_H_
