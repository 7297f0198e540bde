// SPDX-License-Identifier: Apache-2.0
// The first call of one of the object's entry points, which opens the real library and loads the engine. One thread at a time
// does this; the others wait for it.
//
// The set-up takes the loader's lock repeatedly. Another thread may hold that lock and wait for the set-up: a thread that loads
// a library whose constructor makes the same call. To avoid the deadlock the loader's lock is taken first: the set-up runs in
// the resolver of an indirect function, which the C library calls within dlsym() with its lock held. If the C library holds no
// lock there, the set-up still runs, under this object's lock alone.
//
// If the process forks during the set-up, the child starts it again.
#ifndef GPUSHARE_SHIM_PRELOAD_FIRST_CALL_H_
#define GPUSHARE_SHIM_PRELOAD_FIRST_CALL_H_

namespace gpushare::preload {

// The set-up itself (resolve.cc, resolve_nvml.cc). May be called again after it has succeeded.
void SetUp();

// Whether the calling thread is in SetUp(): the libraries that it opens may call the entry points.
bool IsSettingUp();
// Calls SetUp(). Its writes are visible to the caller afterwards.
void DoSetUp();

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_FIRST_CALL_H_
