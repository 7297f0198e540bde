// SPDX-License-Identifier: Apache-2.0
// A program whose main thread has left by pthread_exit() ends with its last thread, with status 0. Threads of ours would
// keep it alive for ever.
#ifndef GPUSHARE_SHIM_LAST_THREADS_H_
#define GPUSHARE_SHIM_LAST_THREADS_H_

namespace gpushare::shim {

// The main thread is leaving, or has left. From then on a thread looks now and then whether all others that are left are
// ours (base/service_threads.h), and ends the process then as its last thread would have. Where the driver keeps threads
// of its own, which nobody can tell from the program's, it goes on for ever, as it would without us.
void EndWithLastThread();
// For who comes late, from another thread: does it if the main thread has left already.
void EndWithLastThreadIfMainThreadHasLeft();

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_LAST_THREADS_H_
