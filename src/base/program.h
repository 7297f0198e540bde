// SPDX-License-Identifier: Apache-2.0
// What a process is called in tables and logs.
//
//   ProgramOf("/usr/bin/python3.11", {"python3", "-u", "train.py"}) == "/usr/bin/python3.11 train.py"
#ifndef GPUSHARE_BASE_PROGRAM_H_
#define GPUSHARE_BASE_PROGRAM_H_

#include <string>
#include <string_view>
#include <vector>

namespace gpushare::base {

// The program's file, and of one that runs scripts what it runs: a file, or "-m module". No other arguments, in which there
// may be secrets.
std::string ProgramOf(std::string_view file, const std::vector<std::string>& arguments);

// This process's; "": it cannot be seen.
std::string ThisProgram();

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_PROGRAM_H_
