// SPDX-License-Identifier: Apache-2.0
// Where the real driver is. Opened by absolute path: by name the loader gives us ourselves.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/preload/preload.h"

namespace gpushare::preload {
namespace {

constexpr char kDriver[] = "libcuda.so.1";
constexpr const char* kFolders[] = {
    "/usr/lib/x86_64-linux-gnu",  // Debian, Ubuntu
    "/usr/lib64",                 // Fedora, SUSE
    "/usr/lib",
    "/usr/local/nvidia/lib64",  // containers of older runtimes, GKE
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",  // NixOS
};

// Not us, be it by another link.
bool IsOther(const char* path) {
  struct stat other, own;
  if (stat(path, &other) != 0 || !S_ISREG(other.st_mode)) return false;
  const char* ours = OwnPath();
  return ours == nullptr || stat(ours, &own) != 0 || own.st_dev != other.st_dev ||
         own.st_ino != other.st_ino;
}

// And not another copy of us.
void* Open(const char* path) {
  if (!IsOther(path)) return nullptr;
  void* handle = gpushare_preload_next_dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  if (dlsym(handle, "gpushare_preload_version") != nullptr) {
    dlclose(handle);
    return nullptr;
  }
  return handle;
}

bool Join(char* path, size_t size, const char* folder, size_t length, const char* file) {
  const int written = snprintf(path, size, "%.*s/%s", static_cast<int>(length), folder, file);
  return written > 0 && static_cast<size_t>(written) < size;
}

void* OpenAsAsked(const char* asked, char* path, size_t size) {
  const int written = snprintf(path, size, "%s", asked);
  return written > 0 && static_cast<size_t>(written) < size ? Open(path) : nullptr;
}

void* OpenInPathList(const char* list, char* path, size_t size) {
  while (list != nullptr && *list != '\0') {
    const char* end = strchrnul(list, ':');
    if (end != list && Join(path, size, list, static_cast<size_t>(end - list), kDriver)) {
      if (void* handle = Open(path)) return handle;
    }
    list = *end == '\0' ? end : end + 1;
  }
  return nullptr;
}

void* OpenFromCache(char* path, size_t size) {
  const int file = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* handle = nullptr;
  struct stat about;
  if (fstat(file, &about) == 0 && about.st_size > 0) {
    const auto bytes = static_cast<size_t>(about.st_size);
    void* cache = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (cache != MAP_FAILED) {
      FindInLoaderCache(static_cast<const unsigned char*>(cache), bytes, kDriver, path, size);
      munmap(cache, bytes);
      if (path[0] != '\0') handle = Open(path);
    }
  }
  close(file);
  return handle;
}

// <prefix>/lib/gpushare/preload/libgpushare_preload.so has it in <prefix>/lib/gpushare/sim.
void* OpenSimulated(char* path, size_t size) {
  if (const char* asked = getenv("GPUSHARE_SIM_DRIVER"); asked != nullptr && *asked != '\0') {
    return OpenAsAsked(asked, path, size);
  }
  const char* own = OwnPath();
  const char* slash = own == nullptr ? nullptr : strrchr(own, '/');
  if (slash == nullptr) return nullptr;
  return Join(path, size, own, static_cast<size_t>(slash - own), "../sim/libcuda.so.1") ? Open(path)
                                                                                        : nullptr;
}

}  // namespace

void* OpenRealDriver(char* path, size_t size) {
  FindNextLoader();
  if (gpushare_preload_next_dlopen == nullptr) return nullptr;
  const char* asked = getenv("GPUSHARE_DRIVER");
  if (asked != nullptr && strcmp(asked, "sim") == 0) return OpenSimulated(path, size);
  if (asked != nullptr && *asked != '\0' && strcmp(asked, kDriver) != 0) {
    return OpenAsAsked(asked, path, size);
  }
  if (void* handle = OpenInPathList(getenv("LD_LIBRARY_PATH"), path, size)) return handle;
  if (void* handle = OpenFromCache(path, size)) return handle;
  for (const char* folder : kFolders) {
    if (!Join(path, size, folder, strlen(folder), kDriver)) continue;
    if (void* handle = Open(path)) return handle;
  }
  return nullptr;
}

}  // namespace gpushare::preload
