// SPDX-License-Identifier: Apache-2.0
// The address space of another process: its mappings, and the functions that its shared objects export.
#ifndef GPUSHARE_BENCH_FAST_PATH_SYMBOLS_H_
#define GPUSHARE_BENCH_FAST_PATH_SYMBOLS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpushare::fast_path {

struct Mapping {
  uint64_t begin, end;
  std::string path;
};
std::vector<Mapping> MappingsOf(pid_t process);

// The exported functions of the ELF file, by their addresses in the file. Several names for one address are joined by '|'.
std::map<uint64_t, std::string> FunctionsOf(const std::string& path);

}  // namespace gpushare::fast_path

#endif  // GPUSHARE_BENCH_FAST_PATH_SYMBOLS_H_
