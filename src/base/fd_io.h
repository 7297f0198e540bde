// SPDX-License-Identifier: Apache-2.0
// Whole texts through descriptors: what a read or write leaves, and a signal interrupts, is gone on with.
//
//   std::string text;
//   if (const int error = ReadAll(fd.get(), 1 << 16, &text)) return absl::ErrnoToStatus(error, path);
//
// For files and for pipes that block. No more than the calls of the kernel, so that a process after fork() may use them
// as far as it may allocate.
#ifndef GPUSHARE_BASE_FD_IO_H_
#define GPUSHARE_BASE_FD_IO_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace gpushare::base {

// Appends what is left in it. 0, or the number of the error, with what could be read in `text`. EFBIG: it is more than
// `most` bytes, of which not all were read.
int ReadAll(int fd, size_t most, std::string* text);

// The same of a file by its path.
int ReadFile(const std::string& path, size_t most, std::string* text);

// To write `path` anew; it is made if it is not there. A pipe that nobody reads yet is looked at so often, each
// time after 50 ms, and then it is ENXIO: open() would wait for ever. None: errno says why.
UniqueFd OpenToWrite(const std::string& path, int looks = 100);
// What errno says of that, in words.
std::string WriteError(int error);

// 0, or the number of the error; how much was written is not known then.
int WriteAll(int fd, std::string_view text);

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_FD_IO_H_
