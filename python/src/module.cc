// SPDX-License-Identifier: Apache-2.0
// gpushare._core: the Python interface to the C ABI. One file per object; python/README.md has the map.
#include <pybind11/pybind11.h>

#include <string>

#include "amount.h"
#include "fork.h"
#include "gpushare/c/gpushare.h"
#include "object.h"

namespace {

// An object created by cls.__new__(cls), without __init__, is not initialised. pybind11 would allocate unconstructed memory for
// it at its first use. Here that use is an error.
void RefuseUnconstructed(const pybind11::module_& m) {
  for (const auto& [name, value] : pybind11::dict(m.attr("__dict__"))) {
    if (!PyType_Check(value.ptr())) continue;
    auto* const type = reinterpret_cast<PyTypeObject*>(value.ptr());
    if (auto* const info = pybind11::detail::get_type_info(type)) {
      info->operator_new = [](size_t) -> void* {
        throw pybind11::type_error("this object was never initialised: __init__() was not called");
      };
    }
  }
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  namespace python = gpushare::python;
  pybind11::options options;
  options.disable_function_signatures();
  m.doc() = "The extension behind gpushare; import gpushare instead.";
  python::WatchForks();
  m.def("version", &gpushare_version, "version()\n--\n\nThe version of the loaded libgpushare.");
  m.def("abi_version", &gpushare_abi_version, "abi_version()\n--\n\nThe version of its C ABI.");
  // Lets the parts written in Python accept durations in the same forms.
  m.def("_duration", [](const pybind11::object& value, const std::string& field) {
    return static_cast<double>(python::DurationFrom(value, field.c_str())) / 1e9;
  });
  python::BindSpec(m);
  python::BindRuntime(m);
  python::BindSimulation(m);
  python::BindGpu(m);
  python::BindTenant(m);
  python::BindVirtualDevice(m);
  python::BindAllocator(m);
  python::BindBuffer(m);
  python::BindKernel(m);
  python::BindEvent(m);
  python::BindStream(m);
  python::BindLease(m);
  python::BindGang(m);
  python::BindSnapshot(m);
  python::BindTorch(m);
  python::BindTrace(m);
  python::BindPlacement(m);
  python::BindWatchdog(m);
  RefuseUnconstructed(m);
}
