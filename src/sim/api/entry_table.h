// SPDX-License-Identifier: Apache-2.0
// Every exported entry point with its address, in the order of src/driver/symbols.def.
#ifndef GPUSHARE_SIM_API_ENTRY_TABLE_H_
#define GPUSHARE_SIM_API_ENTRY_TABLE_H_

namespace gpushare::sim {

struct EntryPoint {
  const char* symbol;
  const char* name;  // the name that cuGetProcAddress is asked for
  int since;         // the first CUDA version in which the name means this symbol
  bool per_thread;
  void* address;
};

extern const EntryPoint kEntryPoints[];

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_API_ENTRY_TABLE_H_
