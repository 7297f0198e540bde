// SPDX-License-Identifier: Apache-2.0
// Whether a file that a program wants to load is the driver (libcuda.so, libcuda.so.1, ... in any folder) or the
// management library (libnvidia-ml.so, ...).
#ifndef GPUSHARE_SHIM_PRELOAD_LIBRARY_NAMES_H_
#define GPUSHARE_SHIM_PRELOAD_LIBRARY_NAMES_H_

#include <string.h>

namespace gpushare::preload {

inline constexpr char kDriverStandIn[] = "libgpushare_preload.so";
inline constexpr char kNvmlStandIn[] = "libgpushare_preload_nvml.so";

inline const char* NameOf(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// Whether the file's name is `library`, or that with a version.
inline bool IsLibrary(const char* path, const char* library) {
  const char* name = NameOf(path);
  const size_t length = strlen(library);
  if (strncmp(name, library, length) != 0) return false;
  return name[length] == '\0' || name[length] == '.';
}

inline bool IsDriver(const char* path) { return IsLibrary(path, "libcuda.so"); }
inline bool IsNvml(const char* path) { return IsLibrary(path, "libnvidia-ml.so"); }

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_LIBRARY_NAMES_H_
