// SPDX-License-Identifier: Apache-2.0
// A module loaded on a GPU, behind gpushare_module.
#ifndef GPUSHARE_DEVICE_STREAM_MODULE_H_
#define GPUSHARE_DEVICE_STREAM_MODULE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/status_payloads.h"
#include "base/text.h"
#include "device/gpu/gpu.h"
#include "device/share/virtual_device.h"
#include "spec/text.h"

namespace gpushare::device {

class Module {
 public:
  // `device` null: in the GPU's primary context.
  static absl::StatusOr<std::shared_ptr<Module>> Load(
      std::shared_ptr<Gpu> gpu, const void* image,
      std::shared_ptr<VirtualDevice> device = nullptr) {
    if (image == nullptr) return absl::InvalidArgumentError("module: the image is null");
    const std::shared_ptr<Module> module(new Module(std::move(gpu), std::move(device)));
    const ContextScope current(module->site());
    GPUSHARE_RETURN_IF_ERROR(current.status());
    std::string log;
    const driver::Result result = module->gpu_->driver().LoadModule(&module->native_, image, &log);
    if (result == driver::Result::kSuccess) return module;
    return Refused(driver::ToStatus(result, "cuModuleLoadData"), log);
  }
  ~Module() {
    if (native_ == nullptr) return;
    const ContextScope current(site());
    static_cast<void>(gpu_->driver().UnloadModule(native_));
    // The next module's functions may lie at the same addresses.
    gpu_->footprints().Clear();
  }

  absl::StatusOr<driver::Function> GetFunction(const char* name) const {
    if (name == nullptr) return absl::InvalidArgumentError("module: the kernel's name is null");
    const ContextScope current(site());
    GPUSHARE_RETURN_IF_ERROR(current.status());
    driver::Function function = nullptr;
    const absl::Status status = driver::ToStatus(
        gpu_->driver().GetFunction(&function, native_, name), "cuModuleGetFunction");
    if (status.ok()) return function;
    return absl::Status(status.code(), absl::StrCat(status.message(), ": kernel ", Quoted(name)));
  }

 private:
  // With what the driver's compiler says, on one line.
  static absl::Status Refused(const absl::Status& status, const std::string& log) {
    const std::vector<std::string> lines = absl::StrSplit(log, '\n', absl::SkipWhitespace());
    if (lines.empty()) return status;
    const absl::Status told(
        status.code(),
        absl::StrCat(status.message(), ": ", Printable(absl::StrJoin(lines, "; "), 1000)));
    return base::WithPayloadsOf(told, status);
  }

  Module(std::shared_ptr<Gpu> gpu, std::shared_ptr<VirtualDevice> device)
      : gpu_(std::move(gpu)), device_(std::move(device)) {}
  const Site& site() const { return device_ != nullptr ? device_->site() : gpu_->site(); }
  const std::shared_ptr<Gpu> gpu_;
  const std::shared_ptr<VirtualDevice> device_;  // kept: with its own context the module would go
  driver::Module native_ = nullptr;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_STREAM_MODULE_H_
