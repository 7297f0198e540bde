// SPDX-License-Identifier: Apache-2.0
// Finds libgpushare.so, which the preloaded objects load into a process when it is needed.
#include <stdlib.h>
#include <string.h>

#include "shim/preload/preload.h"

namespace gpushare::preload {
namespace {

void* OpenEngine() {
  FindNextLoader();
  if (gpushare_preload_next_dlopen == nullptr) return nullptr;
  if (void* handle = gpushare_preload_next_dlopen(PRELOAD_ENGINE, RTLD_NOW | RTLD_NOLOAD)) {
    return handle;
  }
  char path[4096];
  if (!PathBeside("../../" PRELOAD_ENGINE, path, sizeof(path))) return nullptr;
  if (void* handle = gpushare_preload_next_dlopen(path, RTLD_NOW | RTLD_LOCAL)) return handle;
  // If this object was installed as the driver, in a folder of the system, the loader has to find the engine.
  return gpushare_preload_next_dlopen(PRELOAD_ENGINE, RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

void* FindInEngine(const char* name) {
  void* engine = OpenEngine();
  return engine == nullptr ? nullptr : dlsym(engine, name);
}

bool IsDisabled() {
  const char* value = getenv("GPUSHARE_DISABLE");
  return value != nullptr && *value != '\0' && strcmp(value, "0") != 0;
}

}  // namespace gpushare::preload
