// SPDX-License-Identifier: Apache-2.0
// The path of this object, and of files beside it.
#include <stdio.h>
#include <string.h>

#include "shim/preload/preload.h"

namespace gpushare::preload {

const char* OwnPath() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&OwnPath), &info) == 0) return nullptr;
  return info.dli_fname;
}

bool Join(char* path, size_t size, const char* folder, size_t length, const char* file) {
  const int written = snprintf(path, size, "%.*s/%s", static_cast<int>(length), folder, file);
  return written > 0 && static_cast<size_t>(written) < size;
}

bool PathBeside(const char* file, char* path, size_t size) {
  const char* own = OwnPath();
  const char* slash = own == nullptr ? nullptr : strrchr(own, '/');
  return slash != nullptr && Join(path, size, own, static_cast<size_t>(slash - own), file);
}

}  // namespace gpushare::preload
