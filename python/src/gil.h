// SPDX-License-Identifier: Apache-2.0
// Giving up the interpreter's lock around whatever can wait.
//
//   const gpushare_status code = Unlocked([&] { return gpushare_vdev_suspend(handle); });
//
// Every call that reaches the driver can wait: for the gate, for a full queue, and on the simulated
// GPU's virtual clock for the turn. A thread that comes back while the interpreter is going away
// does not come back at all: taking the lock would end the thread in the middle of C++ frames.
#ifndef GPUSHARE_PYTHON_GIL_H_
#define GPUSHARE_PYTHON_GIL_H_

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace gpushare::python {

inline bool Finalizing() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// Calls what may end the thread: taking the lock, and functions written in Python, which give it up and take it
// again. Before Python 3.14 a thread that comes too late is unwound, through frames of pybind11 and of the library
// whose destructors need the lock, which would abort the process. Here it waits for the end of the process, as it
// does in newer ones. `call` itself must own nothing.
template <typename Function>
auto WithoutUnwinding(const Function& call) {
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

class NoGil {
 public:
  NoGil() : ends_(Finalizing()), state_(PyEval_SaveThread()) {}
  ~NoGil() {
    while (!ends_ && Finalizing()) pause();
    WithoutUnwinding([this] { PyEval_RestoreThread(state_); });
  }
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  // Whether it is this thread that ends the interpreter: it may come back. No other has the lock by then.
  const bool ends_;
  PyThreadState* const state_;
};

template <typename Call>
auto Unlocked(const Call& call) {
  const NoGil no_gil;
  return call();
}

// For destructors, which run with the lock or without, also while the interpreter goes away.
template <typename Call>
void UnlockedIfLocked(const Call& call) {
  if (PyGILState_Check() && !Finalizing()) {
    const NoGil no_gil;
    call();
  } else {
    call();
  }
}

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_GIL_H_
