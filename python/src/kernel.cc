// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"

#include "amount.h"
#include "shape.h"
#include "virtual_device.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

constexpr size_t kMostParameters = 4096;

std::shared_ptr<Kernel> NewKernel(CUfunc_st* native, const std::string& name,
                                  const std::shared_ptr<Gpu>& gpu) {
  auto kernel = Born<Kernel>(gpu->family);
  kernel->native = native;
  kernel->name = name;
  kernel->gpu = gpu;
  kernel->born = ForkGeneration();
  if (auto* const info = gpu->calls.param_info) {
    // The first index that is refused ends the list. A refusal of another kind comes at once, and then the sizes are unknown.
    constexpr int kInvalidValue = 1;
    int result = 0;
    Unlocked([&] {
      for (size_t i = 0; i < kMostParameters; ++i) {
        size_t offset = 0, size = 0;
        result = info(native, i, &offset, &size);
        if (result != 0) return;
        kernel->sizes.push_back(static_cast<uint32_t>(size));
      }
    });
    kernel->sizes_known = result == kInvalidValue;
  }
  return kernel;
}

std::shared_ptr<Kernel> FindKernel(const Module& module, const py::object& name) {
  const std::string text = TextFrom(name, "name");
  const ModuleHandle::Use_ use = module.handle.Use();
  CUfunc_st* native = nullptr;
  Check(Unlocked([&] { return gpushare_module_function(use->get(), text.c_str(), &native); }));
  const std::shared_ptr<Kernel> kernel = NewKernel(native, text, module.gpu);
  kernel->module = use;
  return kernel;
}

template <typename Call>
std::shared_ptr<Module> Load(const std::shared_ptr<Gpu>& gpu, const py::object& image,
                             const Call& load) {
  if (!PyUnicode_Check(image.ptr()) && !PyBytes_Check(image.ptr())) {
    ThrowType("image", image, "PTX as str or bytes, or a cubin or fatbin as bytes");
  }
  const auto text = PyUnicode_Check(image.ptr())
                        ? TextFrom(image, "image")
                        : py::cast<std::string>(image);  // has a terminating zero
  gpushare_module handle = nullptr;
  Check(Unlocked([&] { return load(text.c_str(), &handle); }));
  auto module = Born<Module>(gpu->family);
  module->handle.Reset(handle);
  module->gpu = gpu;
  return module;
}

}  // namespace

CUfunc_st* Kernel::Use() const {
  if (born != ForkGeneration()) ThrowForked("kernel");
  if (native == nullptr) ThrowClosed("kernel");
  return native;
}

std::shared_ptr<Module> LoadModule(const std::shared_ptr<Gpu>& gpu, const py::object& image) {
  const auto use = gpu->handle.Use();
  return Load(gpu, image, [&](const void* code, gpushare_module* module) {
    return gpushare_module_load(use->get(), code, module);
  });
}

std::shared_ptr<Module> LoadModuleOn(const VirtualDevice& device, const py::object& image) {
  const auto use = device.handle.Use();
  return Load(device.gpu, image, [&](const void* code, gpushare_module* module) {
    return gpushare_module_load_on(use->get(), code, module);
  });
}

void BindKernel(py::module_& m) {
  auto cls = py::class_<Module, std::shared_ptr<Module>>(
      m, "Module",
      "Code on a GPU; made by Gpu.load() or VirtualDevice.load(). ``module[\"saxpy\"]`` is a "
      "Kernel.");
  cls.def("kernel", &FindKernel, py::arg("name"),
          "kernel(self, name)\n--\n\nThe kernel with this name in the image. Raises "
          "NotFoundError (LookupError).")
      .def("__getitem__", &FindKernel, py::arg("name"));
  AddLifetime(cls,
              "close(self)\n--\n\nUnloads the module once its kernels are gone too. None of them "
              "may be running then.");

  py::class_<Kernel, std::shared_ptr<Kernel>>(
      m, "Kernel", "A function that runs on a GPU; keeps its module loaded.")
      .def_static(
          "from_ptr",
          [](const py::object& gpu, const py::object& ptr, const std::string& name) {
            const auto on = Given<Gpu>(gpu, "gpu", "gpushare.Gpu");
            const uint64_t address = WholeFrom(ptr, "ptr");
            if (address == 0) ThrowInvalid("ptr: 0 given, a CUfunction wanted");
            return NewKernel(reinterpret_cast<CUfunc_st*>(address), name, on);
          },
          py::arg("gpu"), py::arg("ptr"), py::arg("name") = "kernel",
          "from_ptr(gpu, ptr, name=\"kernel\")\n--\n\nA kernel that another library has "
          "loaded, by the address of its CUfunction.")
      .def_property_readonly(
          "name", [](const Kernel& self) { return self.name; }, "Its name.")
      .def_property_readonly(
          "ptr", [](const Kernel& self) { return reinterpret_cast<uintptr_t>(self.Use()); },
          "The CUfunction's address.")
      .def(
          "footprint",
          [](const Kernel& self, const py::object& grid, const py::object& block,
             const py::object& shared) {
            const gpushare_shape shape = ShapeFrom(grid, block, shared);
            const auto use = self.gpu->handle.Use();
            CUfunc_st* const native = self.Use();
            double footprint = 0;
            Check(Unlocked([&] {
              return gpushare_function_footprint(use->get(), native, &shape, &footprint);
            }));
            return footprint;
          },
          py::arg("grid"), py::arg("block"), py::kw_only(), py::arg("shared") = 0,
          "footprint(self, grid, block, *, shared=0)\n--\n\nThe fraction of the GPU's SMs that "
          "a launch of this shape can occupy, in (0, 1].")
      .def(
          "set_max_shared",
          [](const Kernel& self, const py::object& nbytes) {
            const uint64_t bytes = SizeFrom(nbytes, "nbytes");
            const auto use = self.gpu->handle.Use();
            CUfunc_st* const native = self.Use();
            Check(Unlocked([&] {
              return gpushare_function_set_max_shared(
                  use->get(), native, static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX)));
            }));
          },
          py::arg("nbytes"),
          "set_max_shared(self, nbytes)\n--\n\nAllows launches to request up to `nbytes` of "
          "dynamic shared memory: bytes or text.")
      .def("__repr__", [](const Kernel& self) { return "<gpushare.Kernel '" + self.name + "'>"; });
}

}  // namespace gpushare::python
