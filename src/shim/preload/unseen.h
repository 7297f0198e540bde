// SPDX-License-Identifier: Apache-2.0
// Whether somebody has got a function of the driver by which contexts change past the hooks, before these were there. The
// engine keeps nothing of which context is current then (driver/current_context.h).
//
// While the engine is brought in, cuInit runs what CUDA_INJECTION64_PATH names, on the thread that made the first call. It
// gets the driver's own functions. Those that it calls by our entry points lead to the hooks afterwards; what
// cuGetProcAddress has given it, and the driver's private tables, it has for good. So these two are watched, then and where a
// share is refused: the next call may get one.
#ifndef GPUSHARE_SHIM_PRELOAD_UNSEEN_H_
#define GPUSHARE_SHIM_PRELOAD_UNSEEN_H_

#include <stddef.h>

#include "shim/preload/preload.h"

namespace gpushare::preload {

// Not 0 from when somebody has, for as long as the process.
extern int contexts_unseen;
void ContextsChangeUnseen();

// What to give in place of the driver's own function at `index` while there are no hooks: that, or what watches it.
void* Watched(size_t index);
// The same for a program whose share was refused, of what limits nothing; null: it does.
void* WatchedOfRefused(size_t index);

// Whether all that is called so, of whatever version, changes the current context and limits nothing; also
// cuGetExportTable.
bool OnlyChangesContexts(const char* name);

// The entry point of that name, of whatever version; PRELOAD_ENTRY_COUNT: there is none.
size_t FindAnyVersion(const char* name);

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_UNSEEN_H_
