// SPDX-License-Identifier: Apache-2.0
// Builds the spec of a virtual device from Python's keywords.
#ifndef GPUSHARE_PYTHON_SPEC_H_
#define GPUSHARE_PYTHON_SPEC_H_

#include <pybind11/pybind11.h>

#include <string>

#include "gpushare/c/gpushare.h"

namespace gpushare::python {

struct Spec {
  gpushare_spec c = {};
  std::string Text() const;
};

// `text` is None, a Spec or text. The keywords are added and take precedence. The result is validated as a whole.
gpushare_spec SpecFrom(pybind11::handle text, const pybind11::kwargs& fields);
// The same for a change, which need not be complete.
gpushare_spec ChangeFrom(pybind11::handle text, const pybind11::kwargs& fields);

int PriorityFrom(pybind11::handle value, const char* field);
const char* PriorityName(int priority);

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_SPEC_H_
