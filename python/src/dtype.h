// SPDX-License-Identifier: Apache-2.0
// Element types by their names, typestrings and DLPack codes.
#ifndef GPUSHARE_PYTHON_DTYPE_H_
#define GPUSHARE_PYTHON_DTYPE_H_

#include <pybind11/pybind11.h>

#include "dlpack_abi.h"

namespace gpushare::python {

struct DType {
  const char* name;        // "float32"
  const char* typestring;  // "<f4"; what __cuda_array_interface__ says
  dlpack::DataType dlpack;
  uint64_t bytes() const { return dlpack.bits / 8u; }
};

// From a name, a typestring or an object with `.str` or `.name` (numpy's dtypes).
const DType& DTypeFrom(pybind11::handle value, const char* field);
const DType& ByteType();

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_DTYPE_H_
