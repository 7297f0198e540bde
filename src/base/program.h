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

// The program's file and, for an interpreter, the script that it runs: a file or "-m module". Other arguments are left out,
// since they may hold secrets.
std::string ProgramOf(std::string_view file, const std::vector<std::string>& arguments);

// ProgramOf() this process; "" if /proc does not tell.
std::string ThisProgram();

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_PROGRAM_H_
