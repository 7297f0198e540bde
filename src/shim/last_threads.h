// SPDX-License-Identifier: Apache-2.0
// A program whose main thread has left by pthread_exit() ends with its last thread, with status 0. The engine's threads would
// keep it alive forever.
#ifndef GPUSHARE_SHIM_LAST_THREADS_H_
#define GPUSHARE_SHIM_LAST_THREADS_H_

namespace gpushare::shim {

// Call it when the main thread is leaving or has left. From then on a thread checks regularly whether all other remaining
// threads belong to the engine (base/service_threads.h), and then ends the process as its last thread would have. If the
// driver keeps threads of its own, which cannot be told from the program's, the process goes on, as it would without gpushare.
void EndWithLastThread();
// Does the same if the main thread has left already. For a caller on another thread that may come too late for the event.
void EndWithLastThreadIfMainThreadHasLeft();

}  // namespace gpushare::shim

#endif  // GPUSHARE_SHIM_LAST_THREADS_H_
