// SPDX-License-Identifier: Apache-2.0
// Waits for all work of a context, whosesoever it is.
#ifndef GPUSHARE_DRIVER_AWAIT_CONTEXT_H_
#define GPUSHARE_DRIVER_AWAIT_CONTEXT_H_

#include "driver/driver.h"

namespace gpushare::driver {

// Waits for the work that the current context has at this moment. The calling thread must be in the relaxed mode
// (RelaxedCapture).
//
// `captures`: a stream of the context may be capturing. Then cuCtxSynchronize() would fail and break the capture, in whichever
// mode the thread is, because a context with such a stream cannot be waited for. So a byte is allocated and freed: cuMemFree()
// waits for the same work, and only its own memory is needed for it to be legal. kOutOfMemory: there was no room for the byte.
Result AwaitContext(const Driver& driver, bool captures);

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_AWAIT_CONTEXT_H_
