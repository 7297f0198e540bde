// SPDX-License-Identifier: Apache-2.0
// Releases the interpreter's lock (GIL) around everything that can wait.
//
//   const gpushare_status code = Unlocked([&] { return gpushare_vdev_suspend(handle); });
//
// Every call that reaches the driver can wait: for the gate, for a full queue, and for the turn on the simulated GPU's virtual
// clock. If the interpreter is finalizing when the wait ends, the thread never returns: taking the lock would end the thread in
// the middle of C++ frames.
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

// Makes a call that may end the thread: taking the lock, or a function written in Python, which releases and takes it. Before
// Python 3.14, a thread that takes the lock too late is unwound through frames of pybind11 and of the library. Their
// destructors need the lock, so the process would abort. Here the thread waits for the end of the process instead, as it does
// in newer versions. `call` itself must own nothing.
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
  // This thread finalizes the interpreter, so it may return: no other thread gets the lock by then.
  const bool ends_;
  PyThreadState* const state_;
};

template <typename Call>
auto Unlocked(const Call& call) {
  const NoGil no_gil;
  return call();
}

// For destructors, which run with or without the lock, even while the interpreter is finalizing.
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
