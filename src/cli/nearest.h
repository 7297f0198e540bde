// SPDX-License-Identifier: Apache-2.0
// Which of some names was meant by one that is none of them.
//
//   NearestOf("lsit", {"list", "top"}) == "list"
#ifndef GPUSHARE_CLI_NEAREST_H_
#define GPUSHARE_CLI_NEAREST_H_

#include <string>
#include <vector>

namespace gpushare::cli {

// "": it is one of them, or like none.
std::string NearestOf(const std::string& word, const std::vector<std::string>& names);

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_NEAREST_H_
