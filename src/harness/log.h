// SPDX-License-Identifier: Apache-2.0
// What a run's program wrote to standard output and standard error. The file may have any size; only its beginning and its end
// are read.
#ifndef GPUSHARE_HARNESS_LOG_H_
#define GPUSHARE_HARNESS_LOG_H_

#include <string>

namespace gpushare::harness {

// The first 64 KiB, where the loader's messages are; empty if there is no such file.
std::string BeginOfLog(const std::string& path);

// The end of the text for a message, on one line and printable; "it wrote nothing" if it is empty. Says so if the disk is full, since
// then the program could not write more.
std::string EndOfLog(const std::string& path);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_LOG_H_
