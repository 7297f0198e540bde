// SPDX-License-Identifier: Apache-2.0
#include "dtype.h"

#include <string>

#include "amount.h"
#include "errors.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

constexpr DType kTypes[] = {
    {"uint8", "|u1", {1, 8, 1}},
    {"int8", "|i1", {0, 8, 1}},
    {"bool", "|b1", {6, 8, 1}},
    {"uint16", "<u2", {1, 16, 1}},
    {"int16", "<i2", {0, 16, 1}},
    {"uint32", "<u4", {1, 32, 1}},
    {"int32", "<i4", {0, 32, 1}},
    {"uint64", "<u8", {1, 64, 1}},
    {"int64", "<i8", {0, 64, 1}},
    {"float16", "<f2", {2, 16, 1}},
    {"float32", "<f4", {2, 32, 1}},
    {"float64", "<f8", {2, 64, 1}},
    {"complex64", "<c8", {5, 64, 1}},
    {"complex128", "<c16", {5, 128, 1}},
    // There is no typestring for bfloat16; consumers of the array interface see its raw bits.
    {"bfloat16", "<V2", {4, 16, 1}},
};

}  // namespace

const DType& ByteType() { return kTypes[0]; }

const DType& DTypeFrom(py::handle value, const char* field) {
  std::string text;
  if (PyUnicode_Check(value.ptr())) {
    text = TextFrom(value, field);
  } else if (py::hasattr(value, "str") && PyUnicode_Check(value.attr("str").ptr())) {
    text = TextFrom(value.attr("str"), field);
  } else if (py::hasattr(value, "__name__")) {
    text = TextFrom(value.attr("__name__"), field);  // numpy.float32
  } else {
    ThrowType(field, value, "a name such as 'float32', a typestring or a numpy dtype");
  }
  std::string known;
  for (const DType& type : kTypes) {
    const std::string typestring = type.typestring;
    if (text == type.name || text == typestring || text == typestring.substr(1)) return type;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  ThrowInvalid(std::string(field) + ": '" + text + "' given; there are " + known);
}

}  // namespace gpushare::python
