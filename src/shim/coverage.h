// SPDX-License-Identifier: Apache-2.0
// What the shim does with each entry point that it is said to have to see (symbols.def, `hooked`).
#ifndef GPUSHARE_SHIM_COVERAGE_H_
#define GPUSHARE_SHIM_COVERAGE_H_

#include "driver/symbols.h"

namespace gpushare::shim {

// Why `symbol` is passed on as it is although it is marked as hooked; null: no reason is given.
const char* WhyPassedOn(const driver::Symbol& symbol);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_COVERAGE_H_
