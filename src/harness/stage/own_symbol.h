// SPDX-License-Identifier: Apache-2.0
// Looks up a symbol that a shared object itself defines.
//
//   void* const launch = OwnSymbol(dlopen("driver.so", RTLD_NOW), "cuLaunchKernel");
//
// dlsym() may be replaced by a preloaded library that answers with its own functions for every object.
#ifndef GPUSHARE_HARNESS_STAGE_OWN_SYMBOL_H_
#define GPUSHARE_HARNESS_STAGE_OWN_SYMBOL_H_

namespace gpushare::harness {

// `library` is a handle from dlopen(). Returns nullptr if it defines no such symbol or has no GNU hash table.
void* OwnSymbol(void* library, const char* name);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_OWN_SYMBOL_H_
