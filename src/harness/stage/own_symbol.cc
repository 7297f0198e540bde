// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/own_symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace gpushare::harness {
namespace {

// The tables that an object's dynamic section points to.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const uint32_t* hash = nullptr;
  const ElfW(Half) * versions = nullptr;
};

Tables TablesOf(const link_map& map) {
  Tables tables;
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    // On most machines the loader has relocated these pointers; on others they are still offsets.
    const ElfW(Addr) at = entry->d_un.d_ptr;
    const void* const table = reinterpret_cast<const void*>(at < map.l_addr ? at + map.l_addr : at);
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = static_cast<const ElfW(Sym)*>(table);
        break;
      case DT_STRTAB:
        tables.names = static_cast<const char*>(table);
        break;
      case DT_GNU_HASH:
        tables.hash = static_cast<const uint32_t*>(table);
        break;
      case DT_VERSYM:
        tables.versions = static_cast<const ElfW(Half)*>(table);
        break;
      default:
        break;
    }
  }
  return tables;
}

// The hash function of the ELF section DT_GNU_HASH.
uint32_t GnuHash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != 0; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

bool Defines(const ElfW(Sym) & symbol) {
  const auto type = ELF64_ST_TYPE(symbol.st_info);  // the same in both classes
  return symbol.st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_OBJECT);
}

}  // namespace

void* OwnSymbol(void* library, const char* name) {
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  const Tables tables = TablesOf(*map);
  if (tables.symbols == nullptr || tables.names == nullptr || tables.hash == nullptr)
    return nullptr;
  const uint32_t buckets = tables.hash[0], first = tables.hash[1], filters = tables.hash[2];
  if (buckets == 0) return nullptr;
  // Layout: four words, the Bloom filter (skipped), the first symbol of each bucket, then the hashes.
  const uint32_t* const bucket =
      tables.hash + 4 + size_t{filters} * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* const chain = bucket + buckets;
  const uint32_t hash = GnuHash(name);
  uint32_t at = bucket[hash % buckets];
  if (at < first) return nullptr;
  constexpr ElfW(Half) kHidden = 0x8000;  // set for an older version of a symbol
  for (;; ++at) {
    const uint32_t found = chain[at - first];
    const ElfW(Sym)& symbol = tables.symbols[at];
    if ((found | 1) == (hash | 1) && Defines(symbol) &&
        (tables.versions == nullptr || (tables.versions[at] & kHidden) == 0) &&
        std::strcmp(tables.names + symbol.st_name, name) == 0) {
      return reinterpret_cast<void*>(map->l_addr + symbol.st_value);
    }
    if ((found & 1) != 0) return nullptr;
  }
}

}  // namespace gpushare::harness
