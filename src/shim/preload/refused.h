// SPDX-License-Identifier: Apache-2.0
// What a program is told that has no share, or no driver (refused.cc), and what that needs of resolve.cc.
#ifndef GPUSHARE_SHIM_PRELOAD_REFUSED_H_
#define GPUSHARE_SHIM_PRELOAD_REFUSED_H_

#include <stddef.h>

#include "shim/preload/preload.h"

namespace gpushare::preload {

// The real driver's handle; null: there is none.
void* Driver();
// The real driver's function, or what it answers of names that it does not know.
void* RealEntryPoint(size_t index);
// What an entry point answers that cannot be let through: the CUresult of having tried to get a share.
int Refuse();

// Whether it is the driver's own without a share too.
bool PassesRefused(const EntryPoint& entry);
// In place of cuGetProcAddress and cuGetProcAddress_v2, what finds the entry points that answer an error; null
// for all other names.
void* TellerOfRefused(const char* name);

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_REFUSED_H_
