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
#include <unistd.h>

namespace gpushare::python {

inline bool Finalizing() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

class NoGil {
 public:
  NoGil() : state_(PyEval_SaveThread()) {}
  // May throw: older interpreters end a thread that is too late by unwinding it.
  ~NoGil() noexcept(false) {
    while (Finalizing()) pause();
    PyEval_RestoreThread(state_);
  }
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
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
