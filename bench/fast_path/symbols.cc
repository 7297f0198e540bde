// SPDX-License-Identifier: Apache-2.0
#include "bench/fast_path/symbols.h"

#include <elf.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

namespace gpushare::fast_path {
namespace {

template <typename T>
const T* At(const std::string& file, uint64_t offset, uint64_t count = 1) {
  if (offset > file.size() || count > (file.size() - offset) / sizeof(T)) return nullptr;
  return reinterpret_cast<const T*>(file.data() + offset);
}

}  // namespace

std::vector<Mapping> MappingsOf(pid_t process) {
  std::vector<Mapping> mappings;
  std::ifstream file("/proc/" + std::to_string(process) + "/maps");
  for (std::string line; std::getline(file, line);) {
    unsigned long begin = 0, end = 0;
    int path = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %*s %*s %*s %n", &begin, &end, &path) < 2) continue;
    mappings.push_back({begin, end, path > 0 ? line.substr(static_cast<size_t>(path)) : ""});
  }
  return mappings;
}

std::map<uint64_t, std::string> FunctionsOf(const std::string& path) {
  std::map<uint64_t, std::string> functions;
  std::ifstream stream(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(stream), {}};
  const auto* const header = At<Elf64_Ehdr>(file, 0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return functions;
  const auto* const sections = At<Elf64_Shdr>(file, header->e_shoff, header->e_shnum);
  for (unsigned i = 0; sections != nullptr && i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM || sections[i].sh_link >= header->e_shnum) continue;
    const Elf64_Shdr& texts = sections[sections[i].sh_link];
    const uint64_t count = sections[i].sh_size / sizeof(Elf64_Sym);
    const auto* const symbols = At<Elf64_Sym>(file, sections[i].sh_offset, count);
    for (uint64_t k = 0; symbols != nullptr && k < count; ++k) {
      const unsigned type = ELF64_ST_TYPE(symbols[k].st_info);
      if (symbols[k].st_value == 0 || (type != STT_FUNC && type != STT_GNU_IFUNC)) continue;
      const char* const name = At<char>(file, texts.sh_offset + symbols[k].st_name);
      if (name == nullptr) continue;
      std::string& all = functions[symbols[k].st_value];
      all += (all.empty() ? "" : "|") + std::string(name);
    }
  }
  return functions;
}

}  // namespace gpushare::fast_path
