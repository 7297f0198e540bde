// SPDX-License-Identifier: Apache-2.0
// Waits that Ctrl-C ends.
#ifndef GPUSHARE_PYTHON_WAIT_H_
#define GPUSHARE_PYTHON_WAIT_H_

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "errors.h"
#include "gil.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::python {

// For calls with a timeout: `call(timeout_ns)` in slices, between which signals are looked at.
inline constexpr int64_t kSliceNs = 50'000'000;

template <typename Call>
void WaitInSlices(int64_t timeout_ns, const Call& call) {
  for (;;) {
    const int64_t slice = std::min(timeout_ns, kSliceNs);
    const gpushare_status code = Unlocked([&] { return call(slice); });
    if (code == GPUSHARE_OK) return;
    if (code != GPUSHARE_DEADLINE_EXCEEDED || slice == timeout_ns) ThrowLast(code);
    if (timeout_ns != GPUSHARE_FOREVER) timeout_ns -= slice;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
}

// For calls without one: on the main thread, the only one that handles signals, `call` runs on
// another thread and is left to itself when a signal handler raises. So it owns all it touches.
void RunInterruptibly(std::function<gpushare_status()> call);

// Whether the calling thread is registered with a simulated GPU's virtual clock. Such a thread waits
// by itself: the clock would wait for it while another one waits on its behalf.
inline thread_local bool on_virtual_clock = false;

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_WAIT_H_
