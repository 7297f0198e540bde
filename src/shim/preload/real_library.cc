// SPDX-License-Identifier: Apache-2.0
// Finds the real libraries and opens them by absolute path. By name the loader would return this object.
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
constexpr char kNvml[] = "libnvidia-ml.so.1";
constexpr const char* kFolders[] = {
    "/usr/lib/x86_64-linux-gnu",  // Debian, Ubuntu
    "/usr/lib64",                 // Fedora, SUSE
    "/usr/lib",
    "/usr/local/nvidia/lib64",  // containers of older runtimes, GKE
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",  // NixOS
};

// Whether the file is not this object, not even by another link.
bool IsOther(const char* path) {
  struct stat other, own;
  if (stat(path, &other) != 0 || !S_ISREG(other.st_mode)) return false;
  const char* ours = OwnPath();
  return ours == nullptr || stat(ours, &own) != 0 || own.st_dev != other.st_dev ||
         own.st_ino != other.st_ino;
}

// The variable's value; null if it is not set or empty.
const char* Asked(const char* variable) {
  const char* value = getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

void* OpenAsAsked(const char* asked, char* path, size_t size) {
  const int written = snprintf(path, size, "%s", asked);
  return written > 0 && static_cast<size_t>(written) < size ? OpenAt(path) : nullptr;
}

// Opens the library in the folder of the file `beside`.
void* OpenInFolderOf(const char* beside, const char* library, char* path, size_t size) {
  const char* slash = strrchr(beside, '/');
  if (slash == nullptr || !Join(path, size, beside, static_cast<size_t>(slash - beside), library)) {
    return nullptr;
  }
  return OpenAt(path);
}

void* OpenInPathList(const char* list, const char* library, char* path, size_t size) {
  while (list != nullptr && *list != '\0') {
    const char* end = strchrnul(list, ':');
    if (end != list && Join(path, size, list, static_cast<size_t>(end - list), library)) {
      if (void* handle = OpenAt(path)) return handle;
    }
    list = *end == '\0' ? end : end + 1;
  }
  return nullptr;
}

void* OpenFromCache(const char* library, char* path, size_t size) {
  const int file = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* handle = nullptr;
  struct stat about;
  if (fstat(file, &about) == 0 && about.st_size > 0) {
    const auto bytes = static_cast<size_t>(about.st_size);
    void* cache = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (cache != MAP_FAILED) {
      FindInLoaderCache(static_cast<const unsigned char*>(cache), bytes, library, path, size);
      munmap(cache, bytes);
      if (path[0] != '\0') handle = OpenAt(path);
    }
  }
  close(file);
  return handle;
}

// For <prefix>/lib/gpushare/preload/libgpushare_preload.so the simulated library is in <prefix>/lib/gpushare/sim.
void* OpenSimulated(const char* library, char* path, size_t size) {
  char relative[64];
  snprintf(relative, sizeof(relative), "../sim/%s", library);
  return PathBeside(relative, path, size) ? OpenAt(path) : nullptr;
}

}  // namespace

void* OpenAt(const char* path) {
  if (!IsOther(path)) return nullptr;
  void* handle = gpushare_preload_next_dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  if (dlsym(handle, PRELOAD_MARKER) != nullptr) {
    dlclose(handle);
    return nullptr;
  }
  return handle;
}

void* OpenOfSystem(const char* library, char* path, size_t size) {
  if (void* handle = OpenInPathList(getenv("LD_LIBRARY_PATH"), library, path, size)) return handle;
  if (void* handle = OpenFromCache(library, path, size)) return handle;
  for (const char* folder : kFolders) {
    if (!Join(path, size, folder, strlen(folder), library)) continue;
    if (void* handle = OpenAt(path)) return handle;
  }
  return nullptr;
}

void* OpenRealDriver(char* path, size_t size) {
  FindNextLoader();
  if (gpushare_preload_next_dlopen == nullptr) return nullptr;
  const char* asked = Asked("GPUSHARE_DRIVER");
  if (asked == nullptr || strcmp(asked, kDriver) == 0) return OpenOfSystem(kDriver, path, size);
  if (strcmp(asked, "sim") != 0) return OpenAsAsked(asked, path, size);
  const char* simulated = Asked("GPUSHARE_SIM_DRIVER");
  return simulated != nullptr ? OpenAsAsked(simulated, path, size)
                              : OpenSimulated(kDriver, path, size);
}

void* OpenRealNvml(char* path, size_t size) {
  FindNextLoader();
  if (gpushare_preload_next_dlopen == nullptr) return nullptr;
  if (const char* asked = Asked("GPUSHARE_NVML")) return OpenAsAsked(asked, path, size);
  const char* driver = Asked("GPUSHARE_DRIVER");
  if (driver != nullptr && strcmp(driver, "sim") == 0) {
    const char* simulated = Asked("GPUSHARE_SIM_DRIVER");
    // The system's NVML would report other GPUs than the simulated ones.
    return simulated != nullptr ? OpenInFolderOf(simulated, kNvml, path, size)
                                : OpenSimulated(kNvml, path, size);
  }
  if (driver != nullptr) {
    if (void* handle = OpenInFolderOf(driver, kNvml, path, size)) return handle;
  }
  return OpenOfSystem(kNvml, path, size);
}

}  // namespace gpushare::preload
