// SPDX-License-Identifier: Apache-2.0
// Objects that are acquired and released, by one acquirer at a time, and ``async with``. gpushare._async does the waiting, on
// threads that do not block an event loop.
#ifndef GPUSHARE_PYTHON_ASYNC_WITH_H_
#define GPUSHARE_PYTHON_ASYNC_WITH_H_

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>

#include "errors.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::python {

// Ends a wait of another thread within 50 ms. Can be used once.
struct CallOff {
  std::atomic<bool> set{false};
};

// Marks a lease or a gang as being acquired, so that only one thread at a time does it. Needs the interpreter's lock.
template <typename T>
class Acquiring {
 public:
  explicit Acquiring(T& permit) : permit_(permit) {
    if (permit.acquiring || !permit.handle.closed()) Throw("FailedPreconditionError", T::kInUse);
    permit_.acquiring = true;
  }
  ~Acquiring() { permit_.acquiring = false; }
  Acquiring(const Acquiring&) = delete;
  Acquiring& operator=(const Acquiring&) = delete;

 private:
  T& permit_;
};

// `T` must have void AcquireForNobody(int64_t timeout_ns, const CallOff&) and gpushare_lease_options options.
template <typename T, typename... Extra>
void DefineAsyncWith(pybind11::class_<T, Extra...>& cls) {
  namespace py = pybind11;
  cls.def(
         "_acquire_for_nobody",
         [](T& self, const py::object& timeout_ns, const CallOff& call_off) {
           self.AcquireForNobody(
               timeout_ns.is_none() ? GPUSHARE_FOREVER : py::cast<int64_t>(timeout_ns), call_off);
         },
         py::arg("timeout_ns"), py::arg("call_off"),
         "_acquire_for_nobody(self, timeout_ns, call_off)\n--\n\n")
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
