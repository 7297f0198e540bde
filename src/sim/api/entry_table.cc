// SPDX-License-Identifier: Apache-2.0
// Does not include cuda.h: the table needs only addresses, and declares every symbol without its signature.
#include "sim/api/entry_table.h"

#define GPUSHARE_SIM_ENTRY(symbol, name, since, per_thread) extern "C" void symbol(void);
#include "entry_points.inc"
#undef GPUSHARE_SIM_ENTRY

namespace gpushare::sim {

const EntryPoint kEntryPoints[] = {
#define GPUSHARE_SIM_ENTRY(symbol, name, since, per_thread) \
  {#symbol, name, since, per_thread != 0, reinterpret_cast<void*>(&::symbol)},
#include "entry_points.inc"
#undef GPUSHARE_SIM_ENTRY
};

}  // namespace gpushare::sim
