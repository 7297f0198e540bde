// SPDX-License-Identifier: Apache-2.0
// gpushare._core: Python's face of the C ABI. One file per object; python/README.md has the map.
#include <pybind11/pybind11.h>

#include "fork.h"
#include "gpushare/c/gpushare.h"
#include "object.h"

PYBIND11_MODULE(_core, m) {
  namespace python = gpushare::python;
  pybind11::options options;
  options.disable_function_signatures();
  m.doc() = "The extension behind gpushare; import gpushare instead.";
  python::WatchForks();
  m.def("version", &gpushare_version,
        "version()\n--\n\nThe version of the libgpushare that is loaded.");
  m.def("abi_version", &gpushare_abi_version, "abi_version()\n--\n\nThe version of its C ABI.");
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
  python::BindSnapshot(m);
}
