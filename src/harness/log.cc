// SPDX-License-Identifier: Apache-2.0
#include "harness/log.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstddef>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/fd_io.h"
#include "base/text.h"

namespace gpushare::harness {

namespace {

// A program may have put a pipe in the place of its log, and to open that would wait for a writer.
bool IsFile(const std::string& path) {
  struct stat there;
  return stat(path.c_str(), &there) == 0 && S_ISREG(there.st_mode);
}

// What to add to a log that is short because there was no room for more; empty if there is room.
std::string NoRoom(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  struct statvfs disk;
  // Without blocks there is no limit.
  if (statvfs(folder.c_str(), &disk) != 0 || disk.f_blocks == 0 || disk.f_bavail > 0) return "";
  return absl::StrCat("; no room is left in ", folder, ", TMPDIR names another folder");
}

}  // namespace

std::string BeginOfLog(const std::string& path) {
  constexpr size_t kMost = 64 << 10;
  std::string text;
  if (!IsFile(path)) return text;
  base::ReadFile(path, kMost, &text);  // for a longer file this reads the beginning
  text.resize(std::min(text.size(), kMost));
  return text;
}

std::string EndOfLog(const std::string& path) {
  constexpr std::streamoff kMost = 400;
  if (!IsFile(path)) return "it wrote nothing";
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.good() ? static_cast<std::streamoff>(file.tellg()) : 0;
  std::string end(static_cast<size_t>(std::clamp<std::streamoff>(size, 0, kMost)), '\0');
  file.seekg(-static_cast<std::streamoff>(end.size()), std::ios::end);
  file.read(end.data(), static_cast<std::streamsize>(end.size()));
  end.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  absl::StripAsciiWhitespace(&end);
  const std::string shown = Printable(absl::StrReplaceAll(end, {{"\n", "; "}}), 2 * kMost);
  return absl::StrCat(end.empty() ? "it wrote nothing" : shown, NoRoom(path));
}

}  // namespace gpushare::harness
