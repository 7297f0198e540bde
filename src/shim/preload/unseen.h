// SPDX-License-Identifier: Apache-2.0
// Detects code that obtained driver functions which change contexts past the hooks, before the hooks were in place. The engine
// does not cache the current context then (driver/current_context.h).
//
// While the engine is loaded, cuInit runs the library that CUDA_INJECTION64_PATH names, on the thread that made the first call.
// That library gets the driver's own functions. Our entry points lead it to the hooks later, but it keeps the function pointers
// from cuGetProcAddress and the driver's private tables. So these two are watched, during the attach and while a share is
// refused: a later call may get one.
#ifndef GPUSHARE_SHIM_PRELOAD_UNSEEN_H_
#define GPUSHARE_SHIM_PRELOAD_UNSEEN_H_

#include <stddef.h>

#include "shim/preload/preload.h"

namespace gpushare::preload {

// Becomes 1 when that has happened, and stays 1.
extern int contexts_unseen;
void ContextsChangeUnseen();

// The function to use for the entry point at `index` while there are no hooks: the driver's own, or one that watches it.
void* Watched(size_t index);
// The same for a program whose share was refused. Null if the entry point has to be refused.
void* WatchedOfRefused(size_t index);

// Whether `name`, at any version, only changes the current context and is not limited otherwise. True for cuGetExportTable
// too.
bool OnlyChangesContexts(const char* name);

// The entry point of that name at any version; PRELOAD_ENTRY_COUNT if there is none.
size_t FindAnyVersion(const char* name);

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_UNSEEN_H_
