// SPDX-License-Identifier: Apache-2.0
// The common parts of the extension's classes, and the functions that register them.
#ifndef GPUSHARE_PYTHON_OBJECT_H_
#define GPUSHARE_PYTHON_OBJECT_H_

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

#include "errors.h"
#include "owned.h"

namespace gpushare::python {

struct Object : Closable {
  std::shared_ptr<Family> family;
};

// Registration: one function per file, in the order in which module.cc calls them.
void BindSpec(pybind11::module_& m);
void BindRuntime(pybind11::module_& m);
void BindSimulation(pybind11::module_& m);
void BindGpu(pybind11::module_& m);
void BindTenant(pybind11::module_& m);
void BindVirtualDevice(pybind11::module_& m);
void BindAllocator(pybind11::module_& m);
void BindBuffer(pybind11::module_& m);
void BindKernel(pybind11::module_& m);
void BindEvent(pybind11::module_& m);
void BindStream(pybind11::module_& m);
void BindLease(pybind11::module_& m);
void BindGang(pybind11::module_& m);
void BindSnapshot(pybind11::module_& m);
void BindTorch(pybind11::module_& m);
void BindTrace(pybind11::module_& m);
void BindPlacement(pybind11::module_& m);
void BindWatchdog(pybind11::module_& m);

// An argument that must be one of our objects: "gpu: str given, gpushare.Gpu wanted".
template <typename T>
std::shared_ptr<T> Given(pybind11::handle value, const char* field, const char* wanted) {
  if (!pybind11::isinstance<T>(value)) ThrowType(field, value, wanted);
  return pybind11::cast<std::shared_ptr<T>>(value);
}

// Adds close(), `closed` and the context manager's two methods.
template <typename Class>
void AddLifetime(Class& cls, const char* close) {
  using T = typename Class::type;
  cls.def(
         "close", [](T& self) { self.Close(); }, close)
      .def_property_readonly(
          "closed", [](const T& self) { return self.handle.closed(); }, "True after close().")
      .def(
          "__enter__",
          [](pybind11::object self) {
            static_cast<void>(pybind11::cast<T&>(self).handle.Use());
            return self;
          },
          "__enter__(self)\n--\n\n")
      .def(
          "__exit__", [](T& self, const pybind11::args&) { self.Close(); },
          "__exit__(self, *args)\n--\n\nclose().");
}

// Adds a method with CPython's fast calling convention, for calls that are made very often.
inline void AddFastMethod(pybind11::handle cls, PyMethodDef* method) {
  const auto descriptor = pybind11::reinterpret_steal<pybind11::object>(
      PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(cls.ptr()), method));
  if (!descriptor) throw pybind11::error_already_set();
  pybind11::setattr(cls, method->ml_name, descriptor);
}

// The C++ object behind `self`, which must be a T or of a subclass.
template <typename T>
T& Self(PyObject* self) {
  static PyTypeObject* const type =
      reinterpret_cast<PyTypeObject*>(pybind11::type::of<T>().release().ptr());
  if (Py_TYPE(self) == type) [[likely]] {
    auto* const instance = reinterpret_cast<pybind11::detail::instance*>(self);
    if (void* const value = instance->get_value_and_holder().value_ptr()) {
      return *static_cast<T*>(value);
    }
  }
  return pybind11::cast<T&>(pybind11::handle(self));
}

// Runs the body of such a method. Does not use `catch (...)`, which would stop a thread's unwinding.
template <typename Body>
PyObject* Translated(const Body& body) {
  try {
    return body();
  } catch (pybind11::error_already_set& error) {
    error.restore();
  } catch (const pybind11::builtin_exception& error) {
    error.set_error();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_OBJECT_H_
