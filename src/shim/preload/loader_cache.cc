// SPDX-License-Identifier: Apache-2.0
// Reads the dynamic loader's cache (/etc/ld.so.cache) in the format of glibc 2.2 and later, which since 2.32 is the only one:
// a header, and entries that point into a table of strings. The path is needed because opening the library by name would
// return this object.
#include <stdint.h>
#include <string.h>

#include "shim/preload/preload.h"

namespace gpushare::preload {
namespace {

constexpr char kMagic[] = "glibc-ld.so.cache1.1";
constexpr char kOldMagic[] = "ld.so-1.7.0";

struct Header {
  char magic[20];
  uint32_t entries;
  uint32_t string_bytes;
  uint32_t unused[5];
};
struct Entry {
  int32_t flags;
  uint32_t name, path;  // offsets from the header's start
  uint32_t os_version;
  uint64_t hardware;
};
constexpr int32_t kX86Elf64 = 0x0303;  // FLAG_X8664_LIB64 | FLAG_ELF_LIBC6

const char* StringAt(const unsigned char* cache, size_t size, uint32_t offset) {
  if (offset >= size || memchr(cache + offset, 0, size - offset) == nullptr) return nullptr;
  return reinterpret_cast<const char*>(cache + offset);
}

}  // namespace

void FindInLoaderCache(const unsigned char* cache, size_t size, const char* name, char* path,
                       size_t path_size) {
  path[0] = '\0';
  // A cache in the old format may come first, padded to a multiple of eight.
  size_t start = 0;
  struct OldHeader {
    char magic[12];
    uint32_t entries;
  } old;
  if (size >= sizeof(old) && memcmp(cache, kOldMagic, sizeof(kOldMagic) - 1) == 0) {
    memcpy(&old, cache, sizeof(old));
    start = (sizeof(old) + size_t{old.entries} * 12 + 7) & ~size_t{7};
  }
  if (start > size || size - start < sizeof(Header)) return;
  cache += start;
  size -= start;
  Header header;
  memcpy(&header, cache, sizeof(header));
  if (memcmp(header.magic, kMagic, sizeof(kMagic) - 1) != 0) return;
  if (header.entries > (size - sizeof(Header)) / sizeof(Entry)) return;
  for (uint32_t i = 0; i < header.entries; ++i) {
    Entry entry;
    memcpy(&entry, cache + sizeof(Header) + i * sizeof(Entry), sizeof(entry));
    if (entry.flags != kX86Elf64) continue;
    const char* found = StringAt(cache, size, entry.name);
    if (found == nullptr || strcmp(found, name) != 0) continue;
    const char* where = StringAt(cache, size, entry.path);
    if (where == nullptr || strlen(where) >= path_size) continue;
    strcpy(path, where);
    return;
  }
}

}  // namespace gpushare::preload
