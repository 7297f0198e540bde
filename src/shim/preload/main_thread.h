// SPDX-License-Identifier: Apache-2.0
// Whether the program's main thread has left by pthread_exit(), which it may while others of its threads go on. The
// engine's threads must not keep such a process alive (shim/last_threads.h).
//
// Of a thread that returns from main() or calls exit() the C library runs no destructors of thread-specific data: the main
// thread gets such data when this object is loaded, and what destroys it tells.
#ifndef GPUSHARE_SHIM_PRELOAD_MAIN_THREAD_H_
#define GPUSHARE_SHIM_PRELOAD_MAIN_THREAD_H_

namespace gpushare::preload {

// Calls `tell` in the main thread when that leaves, or now, if it has. Once.
void TellOfMainThread(void (*tell)());

}  // namespace gpushare::preload

#endif  // GPUSHARE_SHIM_PRELOAD_MAIN_THREAD_H_
