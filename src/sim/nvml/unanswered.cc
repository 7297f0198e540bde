// SPDX-License-Identifier: Apache-2.0
// Entry points that are not modelled. They are declared without parameters and touch nothing that the caller passes.
#include "sim/nvml/entry.h"

using namespace gpushare::sim::nvml;  // NOLINT: the entry points are global names

#define NVML_UNANSWERED(name)                             \
  NVML_API Return unanswered_##name(void) __asm__(#name); \
  NVML_API Return unanswered_##name(void) { return Initialized() ? kNotSupported : kUninitialized; }
#include "nvml_unanswered.inc"
