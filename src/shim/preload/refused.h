// SPDX-License-Identifier: Apache-2.0
// Answers to a program that has no share, or no driver (refused.cc), and the parts of resolve.cc that this needs.
#ifndef GPUSHARE_SHIM_PRELOAD_REFUSED_H_
#define GPUSHARE_SHIM_PRELOAD_REFUSED_H_

#include <stddef.h>

#include "shim/preload/preload.h"

namespace gpushare::preload {

// The real driver's handle; null if there is none.
void* Driver();
// The real driver's function, or one that answers like the driver for a name that it does not know.
void* RealEntryPoint(size_t index);
// Stands for an entry point that cannot be let through: returns the CUresult of the failed attempt to get a share.
int Refuse();

// Whether the entry point stays the driver's own even without a share.
bool PassesRefused(const EntryPoint& entry);
// The replacement for cuGetProcAddress or cuGetProcAddress_v2 that finds the entry points that return an error; null for all
// other names.
void* TellerOfRefused(const char* name);

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_REFUSED_H_
