// SPDX-License-Identifier: Apache-2.0
// Whether a file that a program wants to load is the driver: libcuda.so, libcuda.so.1, ... in any folder.
#ifndef GPUSHARE_SHIM_PRELOAD_DRIVER_NAME_H_
#define GPUSHARE_SHIM_PRELOAD_DRIVER_NAME_H_

#include <string.h>

namespace gpushare::preload {

inline const char* NameOf(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

inline bool IsDriver(const char* path) {
  constexpr char kName[] = "libcuda.so";
  const char* name = NameOf(path);
  if (strncmp(name, kName, sizeof(kName) - 1) != 0) return false;
  const char next = name[sizeof(kName) - 1];
  return next == '\0' || next == '.';
}

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_DRIVER_NAME_H_
