// SPDX-License-Identifier: Apache-2.0
// What a run's program wrote to standard output and standard error: a file that may be of any size, of which no more than its
// begin and its end is ever read.
#ifndef GPUSHARE_HARNESS_LOG_H_
#define GPUSHARE_HARNESS_LOG_H_

#include <string>

namespace gpushare::harness {

// The first 64 KiB, where the loader has its say; empty where there is no such file.
std::string BeginOfLog(const std::string& path);

// The last of it for a message, on one line and printable; "it wrote nothing" where it did not.
std::string EndOfLog(const std::string& path);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_LOG_H_
