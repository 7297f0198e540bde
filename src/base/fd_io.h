// SPDX-License-Identifier: Apache-2.0
// Reads and writes whole texts through descriptors: short reads and writes and EINTR are continued.
//
//   std::string text;
//   if (const int error = ReadAll(fd.get(), 1 << 16, &text)) return absl::ErrnoToStatus(error, path);
//
// For files and blocking pipes. These functions make system calls and allocate, nothing else, so a process may use them
// after fork() wherever it may allocate.
#ifndef GPUSHARE_BASE_FD_IO_H_
#define GPUSHARE_BASE_FD_IO_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace gpushare::base {

// Appends everything up to the end of file to `text`. Returns 0, or errno with what could be read so far in `text`. EFBIG:
// there are more than `most` bytes, and not all were read.
int ReadAll(int fd, size_t most, std::string* text);

// Like ReadAll(), for the file at `path`.
int ReadFile(const std::string& path, size_t most, std::string* text);

// Opens `path` for writing, truncated, and creates it if it does not exist. For a pipe without a reader, open() would block
// for ever; this tries `looks` times, 50 ms apart, and then fails with ENXIO. On failure the result is empty and errno is set.
UniqueFd OpenToWrite(const std::string& path, int looks = 100);
// The text of an `errno` that OpenToWrite() or WriteAll() gave.
std::string WriteError(int error);

// Returns 0, or errno; after an error it is unknown how much was written.
int WriteAll(int fd, std::string_view text);

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_FD_IO_H_
