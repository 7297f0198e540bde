// SPDX-License-Identifier: Apache-2.0
// dlopen() and dlmopen() of programs: the driver, by whatever name, is ourselves.
//
// By the name libcuda.so.1 the loader finds us anyway, since that is our SONAME. What is left are absolute
// paths, the unversioned name and other namespaces. (A plugin that was opened with RTLD_DEEPBIND and asks for
// an absolute path goes past us: its dlopen() is the C library's.)
#include "shim/preload/driver_name.h"
#include "shim/preload/preload.h"

extern "C" {

DlopenFunction gpushare_preload_next_dlopen = nullptr;
DlmopenFunction gpushare_preload_next_dlmopen = nullptr;

// The file to open instead of `file`; null: that one. Called by the hooks in entry_points.S.
__attribute__((visibility("hidden"))) const char* gpushare_preload_redirect(const char* file);

}  // extern "C"

namespace gpushare::preload {

void FindNextLoader() {
  if (__atomic_load_n(&gpushare_preload_next_dlmopen, __ATOMIC_ACQUIRE) != nullptr) return;
  // Every thread finds the same.
  gpushare_preload_next_dlopen = reinterpret_cast<DlopenFunction>(dlsym(RTLD_NEXT, "dlopen"));
  __atomic_store_n(&gpushare_preload_next_dlmopen,
                   reinterpret_cast<DlmopenFunction>(dlsym(RTLD_NEXT, "dlmopen")),
                   __ATOMIC_RELEASE);
}

const char* OwnPath() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&FindNextLoader), &info) == 0) return nullptr;
  return info.dli_fname;
}

}  // namespace gpushare::preload

const char* gpushare_preload_redirect(const char* file) {
  gpushare::preload::FindNextLoader();
  if (file == nullptr || !gpushare::preload::IsDriver(file)) return nullptr;
  return gpushare::preload::OwnPath();
}
