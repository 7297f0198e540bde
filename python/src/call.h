// SPDX-License-Identifier: Apache-2.0
// Calls functions that are written in Python.
//
//   const py::object answer = Call(function, py::make_tuple(asked, left));
//
// pybind11's operator() cannot be used: its frames own references. A thread that is ended inside the function when the
// interpreter ends would be unwound through them; see WithoutUnwinding().
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
