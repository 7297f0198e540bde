// SPDX-License-Identifier: Apache-2.0
// The program's dlopen() and dlmopen(): the driver, by any name, becomes this object, and NVML the object beside it.
//
// For the name libcuda.so.1 the loader finds this object anyway, since that is its SONAME. The hooks cover absolute paths, the
// unversioned name and other namespaces. (A plugin that was opened with RTLD_DEEPBIND and opens an absolute path is not
// redirected: it calls the C library's dlopen().)
#include <pthread.h>
#include <unistd.h>

#include "shim/preload/library_names.h"
#include "shim/preload/preload.h"

extern "C" {

DlopenFunction gpushare_preload_next_dlopen = nullptr;
DlmopenFunction gpushare_preload_next_dlmopen = nullptr;

// The file to open instead of `file`; null to open `file`. Called by the hooks in loader_hooks.S.
__attribute__((visibility("hidden"))) const char* gpushare_preload_redirect(const char* file);

// The dlopen() that the hook continues at. The object that replaces NVML needs it to open the real NVML.
__attribute__((visibility("default"))) DlopenFunction gpushare_preload_real_dlopen();

}  // extern "C"

namespace gpushare::preload {
namespace {

pthread_once_t looked_for_nvml = PTHREAD_ONCE_INIT;
char nvml_stand_in[4096];  // "": it is not there

void FindNvmlStandIn() {
  if (!PathBeside(kNvmlStandIn, nvml_stand_in, sizeof(nvml_stand_in)) ||
      access(nvml_stand_in, R_OK) != 0) {
    nvml_stand_in[0] = '\0';
  }
}

}  // namespace

void FindNextLoader() {
  if (__atomic_load_n(&gpushare_preload_next_dlmopen, __ATOMIC_ACQUIRE) != nullptr) return;
  // Races are harmless: every thread finds the same function.
  gpushare_preload_next_dlopen = reinterpret_cast<DlopenFunction>(dlsym(RTLD_NEXT, "dlopen"));
  __atomic_store_n(&gpushare_preload_next_dlmopen,
                   reinterpret_cast<DlmopenFunction>(dlsym(RTLD_NEXT, "dlmopen")),
                   __ATOMIC_RELEASE);
}

}  // namespace gpushare::preload

const char* gpushare_preload_redirect(const char* file) {
  using namespace gpushare::preload;
  FindNextLoader();
  if (file == nullptr) return nullptr;
  if (IsDriver(file)) return OwnPath();
  if (!IsNvml(file)) return nullptr;
  pthread_once(&looked_for_nvml, &FindNvmlStandIn);
  return nvml_stand_in[0] == '\0' ? nullptr : nvml_stand_in;
}

DlopenFunction gpushare_preload_real_dlopen() {
  gpushare::preload::FindNextLoader();
  return gpushare_preload_next_dlopen;
}
