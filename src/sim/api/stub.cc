// SPDX-License-Identifier: Apache-2.0
// Entry points that are not modelled: their calls are counted and return CUDA_ERROR_NOT_SUPPORTED. The build lists them in
// stubs.inc: every line of src/driver/symbols.def that is not marked as simulated.
#include "sim/api/api.h"

#define GPUSHARE_SIM_STUB(name)                                                                \
  extern "C" __attribute__((visibility("default"))) CUresult stub_##name(void) __asm__(#name); \
  extern "C" CUresult stub_##name(void) {                                                      \
    SIM_ENTER(name, kNone);                                                                    \
    return CUDA_ERROR_NOT_SUPPORTED;                                                           \
  }                                                                                            \
  static_assert(true)

#include "stubs.inc"
