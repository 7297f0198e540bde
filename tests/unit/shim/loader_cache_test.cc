// SPDX-License-Identifier: Apache-2.0
// The loader's cache as it is on this machine, and corrupted caches.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "shim/preload/preload.h"

namespace gpushare::preload {
namespace {

using Bytes = std::vector<unsigned char>;

std::string Find(const Bytes& cache, const char* name) {
  char path[256] = "unset";
  // A copy of the exact size, so that a sanitizer sees reads past the end.
  const std::vector<unsigned char> exact(cache.begin(), cache.end());
  FindInLoaderCache(exact.data(), exact.size(), name, path, sizeof(path));
  return path;
}

// A cache in the loader's format, with one library.
Bytes Cache(const std::string& name, const std::string& path, uint32_t entries = 1,
            int32_t flags = 0x0303) {
  Bytes cache;
  const auto add = [&](const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    cache.insert(cache.end(), bytes, bytes + size);
  };
  const auto add32 = [&](uint32_t value) { add(&value, sizeof(value)); };
  add("glibc-ld.so.cache1.1", 20);
  add32(entries);
  add32(static_cast<uint32_t>(name.size() + path.size() + 2));
  for (int i = 0; i < 5; ++i) add32(0);
  add32(static_cast<uint32_t>(flags));
  const uint32_t strings = 48 + 24;
  add32(strings);
  add32(strings + static_cast<uint32_t>(name.size()) + 1);
  add32(0);
  add32(0);
  add32(0);
  add(name.c_str(), name.size() + 1);
  add(path.c_str(), path.size() + 1);
  return cache;
}

TEST(LoaderCache, FindsALibrary) {
  const Bytes cache = Cache("libcuda.so.1", "/opt/driver/libcuda.so.1");
  EXPECT_EQ(Find(cache, "libcuda.so.1"), "/opt/driver/libcuda.so.1");
  EXPECT_EQ(Find(cache, "libcuda.so"), "");
  EXPECT_EQ(Find(Cache("libcuda.so.1", "/usr/lib32/libcuda.so.1", 1, 0x0003), "libcuda.so.1"),
            "");  // i386
}

TEST(LoaderCache, OfThisMachine) {
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  if (!file) GTEST_SKIP() << "SKIP: there is no /etc/ld.so.cache";
  const Bytes cache{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(Find(cache, "libc.so.6").find("libc.so.6"), std::string::npos);
}

TEST(LoaderCache, ReadsNothingPastItsEnd) {
  const Bytes good = Cache("libcuda.so.1", "/opt/driver/libcuda.so.1");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(
        Find(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size)), "libcuda.so.1"), "")
        << size;
  }
  EXPECT_EQ(Find(Cache("libcuda.so.1", std::string(300, 'x')), "libcuda.so.1"),
            "");  // longer than the room for it
  for (const uint32_t entries : {2u, 1000u, 0x7fffffffu, 0xffffffffu}) {
    EXPECT_EQ(Find(Cache("other", "/other", entries), "libcuda.so.1"), "") << entries;
  }
}

TEST(LoaderCache, RandomBytes) {
  std::mt19937 random(1);
  const Bytes good = Cache("libcuda.so.1", "/opt/driver/libcuda.so.1");
  for (int round = 0; round < 20000; ++round) {
    Bytes bad = good;
    for (int i = 0; i < 4; ++i) bad[random() % bad.size()] = static_cast<unsigned char>(random());
    const std::string found = Find(bad, "libcuda.so.1");
    EXPECT_LE(found.size(), good.size());
  }
}

}  // namespace
}  // namespace gpushare::preload
