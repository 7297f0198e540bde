// SPDX-License-Identifier: Apache-2.0
// A symbol of a shared object as the object itself defines it.
//
//   void* const launch = OwnSymbol(dlopen("driver.so", RTLD_NOW), "cuLaunchKernel");
//
// dlsym() may be a preloaded library's, which answers with its own functions whatever object is asked.
#ifndef GPUSHARE_HARNESS_STAGE_OWN_SYMBOL_H_
#define GPUSHARE_HARNESS_STAGE_OWN_SYMBOL_H_

namespace gpushare::harness {

// `library` is of dlopen(). nullptr: it defines no such symbol, or has no GNU hash table.
void* OwnSymbol(void* library, const char* name);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_OWN_SYMBOL_H_
