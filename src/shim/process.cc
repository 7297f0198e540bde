// SPDX-License-Identifier: Apache-2.0
#include "shim/process.h"

#include <pthread.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/no_cancel.h"
#include "base/over_quota.h"
#include "base/status_macros.h"
#include "books/relaxed.h"
#include "device/gpu/context_scope.h"
#include "device/gpu/gpu.h"
#include "device/memory/program_free.h"
#include "device/process/broker_share.h"
#include "driver/current_context.h"
#include "shim/environment.h"
#include "shim/launch_kernel.h"
#include "shim/share_log.h"

namespace gpushare::shim {

std::atomic<Process*> Process::process{nullptr}, Process::working{nullptr};
std::atomic<work::Calls*> Process::calls_at_once{nullptr};
std::atomic<bool> Process::forked{false};

absl::Status Process::Attach(const gpushare_shim_driver& driver) {
  if (process.load(std::memory_order_acquire) != nullptr) return absl::OkStatus();
  const base::NoCancel whole;
  std::unique_ptr<Process> made(new Process);
  for (int i = 0; i < kMostGpus; ++i) {
    made->rooms_[static_cast<size_t>(i)].process = made.get();
    made->rooms_[static_cast<size_t>(i)].ordinal = i;
  }
  GPUSHARE_ASSIGN_OR_RETURN(made->over_quota_wait_, base::OverQuotaWait());
  const device::BrokerOptions broker = device::BrokerOptions::OfEnvironment();
  books::Options books;
  books.follow = [process = made.get()](CUstream stream, CUevent event) {
    return process->calls_->StreamWaitEvent(process->payer(), stream, event, 0);
  };
  books.tell = [process = made.get()](CUstream stream, CUhostFn function, void* data) {
    return process->calls_->LaunchHostFunc(process->payer(), stream, function, data);
  };
  books.free_elsewhere = [process = made.get()](CUdeviceptr pointer, const CUstream* stream) {
    const auto freed = device::FreeForProgram(process->runtime_->driver(), pointer, stream);
    return freed.has_value() ? std::optional(static_cast<CUresult>(*freed)) : std::nullopt;
  };
  absl::StatusOr<std::shared_ptr<device::Runtime>> runtime = device::Runtime::CreateOfProcess(
      driver.handle, driver.path, broker, std::move(books),
      [](const device::Runtime&, int ordinal) { return ShareOfEnvironment(ordinal); });
  // A program does not run without its limits. If the broker fails, the error must not say that there is no GPU.
  const bool refused = absl::IsUnavailable(runtime.status()) || absl::IsNotFound(runtime.status());
  if (refused && !broker.socket.empty()) {
    return absl::FailedPreconditionError(runtime.status().message());
  }
  GPUSHARE_ASSIGN_OR_RETURN(made->runtime_, std::move(runtime));
  made->driver_ = &made->runtime_->driver().table();
  made->several_gpus_ = made->runtime_->gpu_count() > 1;
  made->books_ = &made->runtime_->books();
  made->calls_ = std::make_unique<work::Calls>(made->runtime_->driver(), &made->runtime_->graphs());
  made->runtime_->SeesCaptures([calls = made->calls_.get()] { return calls->AnyCaptures(); });
  made->gates_.open = [process = made.get()](CUdevice device) -> work::Gates::Found {
    device::VirtualDevice* const share = process->ShareOf(device);
    if (share == nullptr) return {.refused = true};
    return {.gate = &share->gate()};
  };
  made->since_ = made->Now();
  LaunchKernelsBy(*made->calls_, made->driver());
  if (driver.contexts_unseen != nullptr &&
      __atomic_load_n(driver.contexts_unseen, __ATOMIC_RELAXED) != 0) {
    driver::CurrentContext::End();
  } else {
    driver::CurrentContext::Begin();  // the hooks are in place before any of them is called
  }
  calls_at_once.store(made->calls_.get(), std::memory_order_release);
  process.store(made.get(), std::memory_order_release);
  working.store(made.release(), std::memory_order_release);
  pthread_atfork(nullptr, nullptr, [] {
    forked.store(true, std::memory_order_relaxed);
    working.store(nullptr, std::memory_order_relaxed);
    CallsAtOnce().Forked();
  });
  return absl::OkStatus();
}

Process::Found Process::ShareOf(CUcontext current) {
  const uint64_t epoch = epoch_.load(std::memory_order_acquire);
  CUdevice device = -1;
  Found found{.context = current};
  const CUresult result = driver().CtxGetDevice(&device);
  if (result == CUDA_SUCCESS) {
    found.share = ShareOf(device);
  } else {
    found.answer = result;  // the context was destroyed or lost
  }
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

quota::Grant Process::RoomOn::Reserve(quota::Account&, uint64_t bytes) {
  const base::NoCancel whole;  // it may be working on other tenants' pools
  device::VirtualDevice::Request request{.bytes = bytes, .wait = waits()};
  if (request.wait) request.deadline = process->Now() + process->over_quota_wait_;
  return process->shares_[static_cast<size_t>(ordinal)].load()->Reserve(request);
}

device::VirtualDevice* Process::ShareOf(int ordinal) {
  if (ordinal < 0 || ordinal >= kMostGpus) return nullptr;
  std::atomic<device::VirtualDevice*>& place = shares_[static_cast<size_t>(ordinal)];
  device::VirtualDevice* share = place.load(std::memory_order_acquire);
  if (share != nullptr) return share;
  const base::NoCancel whole;              // reads files and writes to sockets
  const books::Relaxed relaxed(driver());  // the program may be capturing
  const device::ContextScope::Restores restores(runtime_->driver());
  const auto refused = [&](const absl::Status& why) -> device::VirtualDevice* {
    if (!refusal_logged_[static_cast<size_t>(ordinal)].exchange(true)) {
      LogRefusal(ordinal, std::string(why.message()));
    }
    return nullptr;
  };
  const absl::StatusOr<std::shared_ptr<device::Gpu>> gpu =
      runtime_->OpenGpu(absl::StrCat(ordinal), nullptr);
  if (!gpu.ok()) return refused(gpu.status());
  // The runtime owns the share and makes only one, even if several threads come here at once.
  const absl::StatusOr<std::shared_ptr<device::VirtualDevice>> made =
      runtime_->DefaultDevice(**gpu);
  if (!made.ok()) return refused(made.status());
  const bool first = place.exchange(made->get(), std::memory_order_acq_rel) == nullptr;
  gates_.on[ordinal].store(&(*made)->gate(), std::memory_order_release);
  if (first) {
    const device::BrokerOptions broker = device::BrokerOptions::OfEnvironment();
    const device::VirtualDevice& got = **made;
    LogShare({.ordinal = ordinal,
              .memory = got.has_quota() ? std::optional(got.account().most()) : std::nullopt,
              .broker = broker.socket,
              .tenant = runtime_->broker_tenant()});
  }
  return made->get();
}

uint64_t Process::MemoryOf(CUdevice device, uint64_t total) const {
  const absl::StatusOr<std::optional<uint64_t>> quota = runtime_->DefaultMemory(device);
  return quota.ok() && quota->has_value() ? std::min(**quota, total) : total;
}

std::vector<Process::OfGpu> Process::Gpus() {
  {
    base::MutexLock lock(&gpus_mutex_);
    if (!gpus_.empty()) return gpus_;
  }
  std::vector<OfGpu> gpus;  // filled without the lock, because a driver call may wait
  for (int ordinal = 0; ordinal < std::min(runtime_->gpu_count(), kMostGpus); ++ordinal) {
    const absl::StatusOr<driver::Driver::DeviceInfo> info = runtime_->driver().Describe(ordinal);
    const absl::StatusOr<std::optional<uint64_t>> quota = runtime_->DefaultMemory(ordinal);
    if (!info.ok() || !quota.ok()) return {};  // the next call asks again
    gpus.push_back({.uuid = info->uuid, .quota = *quota, .ordinal = ordinal});
  }
  base::MutexLock lock(&gpus_mutex_);
  gpus_ = gpus;
  return gpus;
}

std::optional<Process::OfGpu> Process::FindGpu(const std::string& uuid) {
  for (OfGpu& each : Gpus()) {
    if (!absl::EqualsIgnoreCase(each.uuid, uuid)) continue;
    // The broker's operator may have changed the quota.
    const absl::StatusOr<std::optional<uint64_t>> quota = runtime_->DefaultMemory(each.ordinal);
    if (quota.ok()) each.quota = *quota;
    each.share = shares_[static_cast<size_t>(each.ordinal)].load(std::memory_order_acquire);
    return std::move(each);
  }
  return std::nullopt;
}

}  // namespace gpushare::shim
