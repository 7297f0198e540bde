// SPDX-License-Identifier: Apache-2.0
// ``async with`` for what is acquired and released: gpushare._async does the waiting, in tries that hold up no event loop.
#ifndef GPUSHARE_PYTHON_ASYNC_WITH_H_
#define GPUSHARE_PYTHON_ASYNC_WITH_H_

#include <pybind11/pybind11.h>

#include "gpushare/c/gpushare.h"

namespace gpushare::python {

// `T` has bool Try(int64_t timeout_ns, bool any_thread) and gpushare_lease_options options.
template <typename T, typename... Extra>
void DefineAsyncWith(pybind11::class_<T, Extra...>& cls) {
  namespace py = pybind11;
  cls.def("_try_acquire", &T::Try, py::arg("timeout_ns"), py::arg("any_thread"),
          "_try_acquire(self, timeout_ns, any_thread)\n--\n\n")
      .def_property_readonly("_timeout_ns",
                             [](const T& self) -> py::object {
                               if (self.options.timeout_ns == GPUSHARE_FOREVER) return py::none();
                               return py::int_(self.options.timeout_ns);
                             })
      .def(
          "__aenter__",
          [](const py::object& self) {
            return py::module_::import("gpushare._async").attr("enter")(self);
          },
          "__aenter__(self)\n--\n\nacquire() for coroutines.")
      .def(
          "__aexit__",
          [](const py::object& self, const py::args&) {
            return py::module_::import("gpushare._async").attr("leave")(self);
          },
          "__aexit__(self, *args)\n--\n\nrelease() for coroutines.");
}

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_ASYNC_WITH_H_
