// SPDX-License-Identifier: Apache-2.0
// What the object that stands in for NVML opens the real one by: not by the dlopen() of the object that stands in for
// the driver, which would give us ourselves.
#include "shim/preload/preload.h"

extern "C" {

DlopenFunction gpushare_preload_next_dlopen = nullptr;

}  // extern "C"

namespace gpushare::preload {

void FindNextLoader() {
  using RealDlopen = DlopenFunction (*)();
  const auto ask =
      reinterpret_cast<RealDlopen>(dlsym(RTLD_DEFAULT, "gpushare_preload_real_dlopen"));
  DlopenFunction next = ask == nullptr ? nullptr : ask();
  if (next == nullptr) next = reinterpret_cast<DlopenFunction>(dlsym(RTLD_NEXT, "dlopen"));
  // Every thread finds the same.
  __atomic_store_n(&gpushare_preload_next_dlopen, next, __ATOMIC_RELEASE);
}

}  // namespace gpushare::preload
