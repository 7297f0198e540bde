// SPDX-License-Identifier: Apache-2.0
// The first call of an object's entry points, which opens the real library and brings the engine in. Once, by one thread
// at a time; the others wait for it.
//
// All of that takes the loader's lock, again and again. Somebody may hold that lock and wait for us: a thread that loads
// a library whose constructor makes the same call. So the loader's lock is taken first: what is to be done is done by the
// resolver of an indirect function, which the C library calls within dlsym(), with its lock held. Where it holds none
// there, it is done all the same, with our own lock alone.
//
// A forked child of a thread that was at it begins anew.
#ifndef GPUSHARE_SHIM_PRELOAD_FIRST_CALL_H_
#define GPUSHARE_SHIM_PRELOAD_FIRST_CALL_H_

namespace gpushare::preload {

// What there is to do (resolve.cc, resolve_nvml.cc). Called again with every first call, also when all is done.
void SetUp();

// Whether the calling thread is in SetUp(): what it opens may call us.
bool IsSettingUp();
// Calls SetUp(). What that has written is seen after it.
void DoSetUp();

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_FIRST_CALL_H_
