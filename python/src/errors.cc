// SPDX-License-Identifier: Apache-2.0
#include "errors.h"

#include "call.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

py::object Attribute(const char* name) {
  return py::module_::import("gpushare._errors").attr(name);
}

[[noreturn]] void Raise(const py::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw py::error_already_set();
}

}  // namespace

Failure Failure::Last(gpushare_status code) {
  Failure failure;
  failure.code = code;
  if (code == GPUSHARE_OK) return failure;
  failure.message = gpushare_last_message();
  failure.detail.struct_size = sizeof(failure.detail);
  static_cast<void>(gpushare_last_detail(&failure.detail));
  return failure;
}

void Failure::Throw() const {
  if (code == GPUSHARE_OK) return;
  Raise(Call(Attribute("_make"),
             py::make_tuple(message, gpushare_status_name(code), detail.driver_result,
                            detail.tenant, detail.limit, detail.asked, detail.left, detail.total)));
}

void ThrowLast(gpushare_status code) {
  Failure::Last(code).Throw();
  __builtin_unreachable();
}

void WarnLast() {
  const std::string message = gpushare_last_message();
  if (Finalizing()) return;
  const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
  {
    const py::error_scope pending;
    const int raised =
        WithoutUnwinding([&] { return PyErr_WarnEx(PyExc_RuntimeWarning, message.c_str(), 1); });
    if (raised != 0) PyErr_WriteUnraisable(nullptr);
  }
  PyGILState_Release(gil);
}

void Throw(const char* name, const std::string& message) {
  const std::string text(name);
  const char* code = text == "InvalidArgumentError" ? "INVALID_ARGUMENT" : "FAILED_PRECONDITION";
  py::dict keywords;
  keywords["code"] = code;
  Raise(Call(Attribute(name), py::make_tuple(message), keywords));
}

void ThrowClosed(const char* kind) {
  Throw("ClosedError", std::string("this ") + kind + " has been closed");
}

void ThrowForked(const char* kind) {
  Throw("ForkedError",
        std::string("this ") + kind +
            " belongs to the process that this one was forked from, and CUDA does not survive "
            "fork(): start processes with multiprocessing's 'spawn' or 'forkserver' method and "
            "open the GPU there");
}

void ThrowType(const char* field, py::handle given, const char* wanted) {
  throw py::type_error(std::string(field) + ": " + Py_TYPE(given.ptr())->tp_name + " given, " +
                       wanted + " wanted");
}

}  // namespace gpushare::python
