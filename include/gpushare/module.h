// SPDX-License-Identifier: Apache-2.0
// Loading kernels, and how much of the device a launch can occupy.
//
//   absl::StatusOr<Module> module = Module::Load(*gpu, ptx);
//   absl::StatusOr<Function> saxpy = module->GetFunction("saxpy");
//   stream->Launch(*saxpy, {.grid = {n / 256}, .block = {256}}, x.pointer(), y.pointer(), 2.0f);
//
// Functions loaded elsewhere (cudaGetFuncBySymbol, another library) work as well: Function takes
// any handle. Errors: InvalidArgument for a broken image, NotFound for an unknown kernel.
// Threading: thread-safe.
#ifndef GPUSHARE_MODULE_H_
#define GPUSHARE_MODULE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/gpu.h"
#include "gpushare/internal/handle.h"
#include "gpushare/internal/text.h"
#include "gpushare/units.h"
#include "gpushare/virtual_device.h"

struct CUfunc_st;

namespace gpushare {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Dim3 grid = {}, block = {};
  Bytes shared = Bytes(0);  // dynamic shared memory
  // The longest wait at the gate; then DeadlineExceeded. Zero does not wait.
  absl::Duration timeout = absl::InfiniteDuration();
};

namespace internal {
inline gpushare_shape ToC(const LaunchShape& s) {
  return {{s.grid.x, s.grid.y, s.grid.z},
          {s.block.x, s.block.y, s.block.z},
          // No device has that much; the driver refuses UINT32_MAX.
          s.shared.count() > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(s.shared.count())};
}
}  // namespace internal

// A kernel: a view of a CUfunction, valid as long as its module.
class Function {
 public:
  Function() = default;
  explicit Function(CUfunc_st* native) : native_(native) {}
  CUfunc_st* native() const { return native_; }

  // The part of the GPU's SMs that a launch of this shape can occupy: ceil(blocks / blocks per SM) / SMs,
  // at most 1. 1 on a GPU that runs one kernel at a time.
  absl::StatusOr<Share> Footprint(const Gpu& gpu, const LaunchShape& shape) const {
    const gpushare_shape c = internal::ToC(shape);
    double footprint = 0;
    const gpushare_status code = gpushare_function_footprint(gpu.handle(), native_, &c, &footprint);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Share::Fraction(footprint);
  }
  // Allows launches with up to this much dynamic shared memory.
  absl::Status SetMaxShared(const Gpu& gpu, Bytes bytes) const {
    const uint32_t n =
        bytes.count() > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(bytes.count());
    return internal::ToStatus(gpushare_function_set_max_shared(gpu.handle(), native_, n));
  }

 private:
  CUfunc_st* native_ = nullptr;
};

// Owns a loaded module and unloads it when destroyed. None of its kernels may be running then.
class Module {
 public:
  // PTX text, a cubin or a fatbin.
  static absl::StatusOr<Module> Load(const Gpu& gpu, const std::string& image) {
    gpushare_module module = nullptr;
    const gpushare_status code = gpushare_module_load(gpu.handle(), image.c_str(), &module);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Module(module);
  }

  // Loads into the virtual device's context, and keeps the virtual device alive. With Isolation::kContext its streams
  // accept only kernels of such modules.
  static absl::StatusOr<Module> Load(const VirtualDevice& device, const std::string& image) {
    gpushare_module module = nullptr;
    const gpushare_status code = gpushare_module_load_on(device.handle(), image.c_str(), &module);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Module(module);
  }

  absl::StatusOr<Function> GetFunction(const std::string& name) const {
    const absl::Status text = internal::CheckText("kernel name", name);
    if (!text.ok()) return text;
    CUfunc_st* function = nullptr;
    const gpushare_status code = gpushare_module_function(handle_.get(), name.c_str(), &function);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Function(function);
  }

  gpushare_module handle() const { return handle_.get(); }

 private:
  explicit Module(gpushare_module handle) : handle_(handle) {}
  internal::Handle<gpushare_module, gpushare_module_unload> handle_;
};

}  // namespace gpushare

#endif  // GPUSHARE_MODULE_H_
