// SPDX-License-Identifier: Apache-2.0
// Which entry points that symbols.def marks as `hooked` have no hook, and why.
#ifndef GPUSHARE_SHIM_COVERAGE_H_
#define GPUSHARE_SHIM_COVERAGE_H_

#include "driver/symbols.h"

namespace gpushare::shim {

// Why calls of `symbol` are passed on unchanged although it is marked as hooked. Null if no reason is given.
const char* WhyPassedOn(const driver::Symbol& symbol);

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_COVERAGE_H_
