// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "shim/preload/preload.h"

namespace gpushare::preload {

const EntryPoint kEntryPoints[PRELOAD_ENTRY_COUNT] = {
#define PRELOAD_ENTRY_NAME(name, hooked) {#name, hooked},
#include "preload_names.inc"
#undef PRELOAD_ENTRY_NAME
};

void SetSlot(size_t index, void* function) {
  __atomic_store_n(&gpushare_preload_slots[index], function, __ATOMIC_RELEASE);
}

size_t FindEntryPoint(const char* name) {
  size_t low = 0, high = PRELOAD_ENTRY_COUNT;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const int order = strcmp(kEntryPoints[middle].name, name);
    if (order == 0) return middle;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return PRELOAD_ENTRY_COUNT;
}

}  // namespace gpushare::preload
