// SPDX-License-Identifier: Apache-2.0
// Converts grids and blocks given in Python.
#ifndef GPUSHARE_PYTHON_SHAPE_H_
#define GPUSHARE_PYTHON_SHAPE_H_

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>

#include "amount.h"
#include "errors.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::python {

inline uint32_t ExtentFrom(pybind11::handle value, const char* field) {
  if (PyLong_CheckExact(value.ptr())) {
    const long n = PyLong_AsLong(value.ptr());
    if (n >= 0 && n <= static_cast<long>(UINT32_MAX)) return static_cast<uint32_t>(n);
    PyErr_Clear();
  }
  return static_cast<uint32_t>(WholeFrom(value, field, UINT32_MAX, "extents of 0 to 2^32-1"));
}

inline void ExtentsFrom(pybind11::handle value, const char* field, uint32_t (&extents)[3]) {
  extents[0] = extents[1] = extents[2] = 1;
  if (PyTuple_CheckExact(value.ptr()) || PyList_CheckExact(value.ptr())) {
    const Py_ssize_t count = Py_SIZE(value.ptr());
    if (count < 1 || count > 3) {
      ThrowInvalid(std::string(field) + ": " + std::to_string(count) +
                   " extents given, 1 to 3 wanted");
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
      extents[i] = ExtentFrom(PyTuple_CheckExact(value.ptr()) ? PyTuple_GET_ITEM(value.ptr(), i)
                                                              : PyList_GET_ITEM(value.ptr(), i),
                              field);
    }
    return;
  }
  if (!IsWhole(value)) ThrowType(field, value, "an int or a tuple of up to three");
  extents[0] = ExtentFrom(value, field);
}

inline gpushare_shape ShapeFrom(pybind11::handle grid, pybind11::handle block,
                                pybind11::handle shared) {
  gpushare_shape shape = {};
  ExtentsFrom(grid, "grid", shape.grid);
  ExtentsFrom(block, "block", shape.block);
  if (shared.ptr() != nullptr) {
    shape.shared_bytes =
        static_cast<uint32_t>(std::min<uint64_t>(SizeFrom(shared, "shared"), UINT32_MAX));
  }
  return shape;
}

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_SHAPE_H_
