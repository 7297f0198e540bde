// SPDX-License-Identifier: Apache-2.0
#include "shim/process.h"

#include <pthread.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/limit_variables.h"
#include "base/status_macros.h"
#include "books/relaxed.h"
#include "device/gpu.h"
#include "spec/spec.h"

namespace gpushare::shim {
namespace {

constexpr char kSpec[] = "GPUSHARE_SPEC";

absl::StatusOr<gpushare_spec> Check(const std::string& text) {
  GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec spec, spec::ParseSpec(text));
  GPUSHARE_RETURN_IF_ERROR(spec::ValidateSpec(spec));
  // The program makes its contexts itself.
  if ((spec.set & GPUSHARE_SPEC_ISOLATION) && spec.isolation != GPUSHARE_ISOLATION_SHARED) {
    return absl::InvalidArgumentError("isolation: 'shared' only");
  }
  return spec;
}

absl::StatusOr<device::Runtime::Share> ShareOfEnvironment(int ordinal) {
  const std::string own = base::GetEnv(kSpec).value_or("");
  std::vector<base::Limit> used;
  const std::string text = base::AddLimits(own, base::FindLimits(ordinal), &used);
  const absl::StatusOr<gpushare_spec> spec = Check(text);
  if (!spec.ok()) {
    std::string from = own.empty() ? "" : kSpec;
    for (const base::Limit& limit : used) {
      absl::StrAppend(&from, from.empty() ? "" : ", ", limit.variable);
    }
    return absl::Status(spec.status().code(), absl::StrCat(from, ": ", spec.status().message()));
  }
  device::Runtime::Share share{.spec = *spec};
  // Others' limits may be a whole card's memory, which is more than can be promised of it.
  for (const base::Limit& limit : used) share.at_most = share.at_most || limit.key == "memory";
  return share;
}

}  // namespace

Process* Process::process = nullptr;
std::atomic<bool> Process::forked{false};

absl::Status Process::Attach(const gpushare_shim_driver& driver) {
  if (process != nullptr) return absl::OkStatus();
  std::unique_ptr<Process> made(new Process);
  GPUSHARE_ASSIGN_OR_RETURN(made->runtime_, device::Runtime::CreateOfProcess(
                                                driver.handle, driver.path, &ShareOfEnvironment));
  made->driver_ = &made->runtime_->driver().table();
  made->books_ = std::make_unique<books::Books>(made->driver());
  made->calls_ = std::make_unique<work::Calls>(made->runtime_->driver());
  made->gates_.open = [process = made.get()](CUdevice device) -> work::Gates::Found {
    device::VirtualDevice* const share = process->ShareOf(device);
    if (share == nullptr) return {.refused = true};
    return {.gate = &share->gate()};
  };
  process = made.release();
  pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  return absl::OkStatus();
}

Process::Found Process::ShareOf(CUcontext current) {
  const uint64_t epoch = epoch_.load(std::memory_order_acquire);
  CUdevice device = -1;
  Found found{.context = current};
  if (driver().CtxGetDevice(&device) == CUDA_SUCCESS) found.share = ShareOf(device);
  found.refused = found.share == nullptr;
  if (!found.refused) LastSeen() = {current, epoch, found.share};
  return found;
}

Process::Found Process::ShareOn(CUdevice device) {
  Found found;
  found.share = ShareOf(device);
  found.device = device;
  found.refused = found.share == nullptr;
  driver().CtxGetCurrent(&found.context);
  return found;
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
  gates_.on[ordinal].store(&(*made)->gate(), std::memory_order_release);
  return made->get();
}

uint64_t Process::MemoryOf(CUdevice device, uint64_t total) const {
  const absl::StatusOr<std::optional<uint64_t>> quota = runtime_->DefaultMemory(device);
  return quota.ok() && quota->has_value() ? std::min(**quota, total) : total;
}

}  // namespace gpushare::shim
