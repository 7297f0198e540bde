// SPDX-License-Identifier: Apache-2.0
#include "harness/log.h"

#include <algorithm>
#include <cstddef>
#include <fstream>

#include "base/fd_io.h"
#include "base/text.h"

namespace gpushare::harness {

std::string BeginOfLog(const std::string& path) {
  constexpr size_t kMost = 64 << 10;
  std::string text;
  base::ReadFile(path, kMost, &text);  // for a longer file this reads the beginning
  text.resize(std::min(text.size(), kMost));
  return text;
}

std::string EndOfLog(const std::string& path) {
  constexpr std::streamoff kMost = 400;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.good() ? static_cast<std::streamoff>(file.tellg()) : 0;
  std::string end(static_cast<size_t>(std::clamp<std::streamoff>(size, 0, kMost)), '\0');
  file.seekg(-static_cast<std::streamoff>(end.size()), std::ios::end);
  file.read(end.data(), static_cast<std::streamsize>(end.size()));
  end.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return end.empty() ? "it wrote nothing" : Printable(end, 2 * kMost);
}

}  // namespace gpushare::harness
