// SPDX-License-Identifier: Apache-2.0
// The dlopen() with which the object that replaces NVML opens the real one. The one of the object that replaces the driver
// would redirect it to this object.
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
  // Races are harmless: every thread finds the same function.
  __atomic_store_n(&gpushare_preload_next_dlopen, next, __ATOMIC_RELEASE);
}

}  // namespace gpushare::preload
