// SPDX-License-Identifier: Apache-2.0
// Detects that the program's main thread has left by pthread_exit() while its other threads go on. The engine's threads must
// not keep such a process alive (shim/last_threads.h).
//
// The C library runs no destructors of thread-specific data for a thread that returns from main() or calls exit(). So the main
// thread gets such data when this object is loaded, and its destructor reports the event.
#ifndef GPUSHARE_SHIM_PRELOAD_MAIN_THREAD_H_
#define GPUSHARE_SHIM_PRELOAD_MAIN_THREAD_H_

namespace gpushare::preload {

// Calls `tell` in the main thread when that leaves, or now if it has left. Call it once.
void TellOfMainThread(void (*tell)());

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_MAIN_THREAD_H_
