// SPDX-License-Identifier: Apache-2.0
// Calling functions that are written in Python.
//
//   const py::object answer = Call(function, py::make_tuple(asked, left));
//
// Not by pybind11's operator(): its frames own references, and a thread that is ended within the function at
// the interpreter's end would be unwound through them; see WithoutUnwinding().
#ifndef GPUSHARE_PYTHON_CALL_H_
#define GPUSHARE_PYTHON_CALL_H_

#include <pybind11/pybind11.h>

#include "gil.h"

namespace gpushare::python {

// Throws error_already_set.
inline pybind11::object Call(pybind11::handle function, const pybind11::tuple& arguments,
                             pybind11::handle keywords = {}) {
  PyObject* const result = WithoutUnwinding(
      [&] { return PyObject_Call(function.ptr(), arguments.ptr(), keywords.ptr()); });
  if (result == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::object>(result);
}

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_CALL_H_
