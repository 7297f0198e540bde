// SPDX-License-Identifier: Apache-2.0
// Converts failed calls of the library to Python's exceptions (python/gpushare/_errors.py).
#ifndef GPUSHARE_PYTHON_ERRORS_H_
#define GPUSHARE_PYTHON_ERRORS_H_

#include <pybind11/pybind11.h>

#include <string>

#include "gpushare/c/gpushare.h"

namespace gpushare::python {

// Raises the exception for `code`, which the calling thread's last call returned, with that call's message.
[[noreturn]] void ThrowLast(gpushare_status code);

inline void Check(gpushare_status code) {
  if (code != GPUSHARE_OK) [[unlikely]] {
    ThrowLast(code);
  }
}

// The failure of a call that ran on another thread.
struct Failure {
  gpushare_status code = GPUSHARE_OK;
  std::string message;
  gpushare_error_detail detail = {};

  static Failure Last(gpushare_status code);
  void Throw() const;  // does nothing if the code is OK
};

// Issues a RuntimeWarning with the message of the calling thread's last call, for destructors: raises nothing, and is called
// without the interpreter's lock.
void WarnLast();

// Raises gpushare.<name>, one of the classes of _errors.py.
[[noreturn]] void Throw(const char* name, const std::string& message);
[[noreturn]] inline void ThrowInvalid(const std::string& message) {
  Throw("InvalidArgumentError", message);
}
[[noreturn]] void ThrowClosed(const char* kind);
[[noreturn]] void ThrowForked(const char* kind);

// "nbytes: a list given; bytes as int, or text such as '8 GiB', wanted"
[[noreturn]] void ThrowType(const char* field, pybind11::handle given, const char* wanted);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_ERRORS_H_
