// SPDX-License-Identifier: Apache-2.0
#include "shim/process.h"

#include <pthread.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "books/relaxed.h"
#include "device/gpu.h"
#include "device/spec.h"

namespace gpushare::shim {
namespace {

constexpr char kSpec[] = "GPUSHARE_SPEC";

absl::StatusOr<gpushare_spec> SpecOfEnvironment() {
  const std::optional<std::string> text = base::GetEnv(kSpec);
  absl::StatusOr<gpushare_spec> spec = device::ParseSpec(text.value_or(""));
  if (!spec.ok()) {
    return absl::Status(spec.status().code(), absl::StrCat(kSpec, ": ", spec.status().message()));
  }
  return spec;
}

// Where a thread was last.
thread_local CUcontext seen_context = nullptr;
thread_local uint64_t seen_epoch = 0;
thread_local device::VirtualDevice* seen_share = nullptr;

}  // namespace

Process* Process::process = nullptr;

absl::Status Process::Attach(const gpushare_shim_driver& driver) {
  if (process != nullptr) return absl::OkStatus();
  std::unique_ptr<Process> made(new Process);
  GPUSHARE_ASSIGN_OR_RETURN(made->spec_, SpecOfEnvironment());
  GPUSHARE_RETURN_IF_ERROR(device::ValidateSpec(made->spec_));
  GPUSHARE_ASSIGN_OR_RETURN(
      made->runtime_, device::Runtime::CreateOfProcess(driver.handle, driver.path, made->spec_));
  made->books_ = std::make_unique<books::Books>(made->driver());
  process = made.release();
  pthread_atfork(nullptr, nullptr, [] { process->forked_.store(true, std::memory_order_relaxed); });
  return absl::OkStatus();
}

device::VirtualDevice* Process::Share(CUcontext* context) {
  CUcontext current = nullptr;
  if (forked_.load(std::memory_order_relaxed) || driver().CtxGetCurrent(&current) != CUDA_SUCCESS ||
      current == nullptr) {
    return nullptr;
  }
  if (context != nullptr) *context = current;
  const uint64_t epoch = epoch_.load(std::memory_order_acquire);
  if (current == seen_context && epoch == seen_epoch) return seen_share;
  CUdevice device = -1;
  if (driver().CtxGetDevice(&device) != CUDA_SUCCESS) return nullptr;
  device::VirtualDevice* const share = ShareOf(device);
  if (share == nullptr) return nullptr;
  seen_context = current;
  seen_epoch = epoch;
  return seen_share = share;
}

device::VirtualDevice* Process::ShareOf(int ordinal) {
  if (ordinal < 0 || ordinal >= kMostGpus) return nullptr;
  std::atomic<device::VirtualDevice*>& place = shares_[static_cast<size_t>(ordinal)];
  device::VirtualDevice* share = place.load(std::memory_order_acquire);
  if (share != nullptr) return share;
  const books::Relaxed relaxed(driver());  // the program may be capturing
  const absl::StatusOr<std::shared_ptr<device::Gpu>> gpu =
      runtime_->OpenGpu(absl::StrCat(ordinal), nullptr);
  if (!gpu.ok()) return nullptr;
  // Of the runtime, which keeps it: one for all threads that come here at once.
  const absl::StatusOr<std::shared_ptr<device::VirtualDevice>> made =
      runtime_->DefaultDevice(**gpu);
  if (!made.ok()) return nullptr;
  place.store(made->get(), std::memory_order_release);
  return made->get();
}

uint64_t Process::MemoryOf(CUdevice device, uint64_t total) const {
  const absl::StatusOr<std::optional<uint64_t>> quota = runtime_->DefaultMemory(device);
  return quota.ok() && quota->has_value() ? std::min(**quota, total) : total;
}

}  // namespace gpushare::shim
