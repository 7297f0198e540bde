// SPDX-License-Identifier: Apache-2.0
// The functions that the preloaded object calls (attach_abi.h).
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/no_cancel.h"
#include "base/time.h"
#include "device/process/broker_share.h"
#include "record/page.h"
#include "shim/attach_abi.h"
#include "shim/hook.h"
#include "shim/last_threads.h"
#include "shim/process.h"
#include "shim/record/recorder.h"
#include "shim/share_log.h"

namespace gpushare::shim {
namespace {

void Sort(Hooks* hooks) {
  std::sort(hooks->begin(), hooks->end(),
            [](const auto& a, const auto& b) { return std::strcmp(a.name, b.name) < 0; });
}

const Hooks& AllHooks() {
  static const Hooks& hooks = *[] {
    auto* all = new Hooks;
    AddLoaderHooks(all);
    AddContextHooks(all);
    AddMemoryHooks(all);
    AddVirtualMemoryHooks(all);
    AddPoolHooks(all);
    AddWorkHooks(all);
    AddGraphHooks(all);
    AddStreamHooks(all);
    AddModuleHooks(all);
    AddQueryHooks(all);
    Sort(all);
    return all;
  }();
  return hooks;
}

// The hooks for a process that is recorded. Empty if recording is impossible: the process then runs without hooks.
const Hooks& HooksOfRecording(const gpushare_shim_driver& driver) {
  static const Hooks& hooks = *[&] {
    auto* all = new Hooks;
    if (recording::Recorder::Attach(driver).ok()) {
      AddLoaderHooks(all);
      AddRecordHooks(all);
      Sort(all);
    }
    return all;
  }();
  return hooks;
}

// The hooks to use instead of AllHooks(), if not null.
std::atomic<const Hooks*> instead{nullptr};

CUresult CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return CUDA_SUCCESS;
    case absl::StatusCode::kInvalidArgument:
      return CUDA_ERROR_INVALID_VALUE;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kNotFound:
      return CUDA_ERROR_NO_DEVICE;
    case absl::StatusCode::kResourceExhausted:
      return CUDA_ERROR_OUT_OF_MEMORY;
    default:
      return CUDA_ERROR_SYSTEM_NOT_READY;
  }
}

}  // namespace

void* FindHook(const char* name) {
  const Hooks* const others = instead.load(std::memory_order_acquire);
  const Hooks& hooks = others != nullptr ? *others : AllHooks();
  const auto at = std::lower_bound(hooks.begin(), hooks.end(), name,
                                   [](const gpushare_shim_hook& hook, const char* wanted) {
                                     return std::strcmp(hook.name, wanted) < 0;
                                   });
  return at != hooks.end() && std::strcmp(at->name, name) == 0 ? at->function : nullptr;
}

void* RealEntry(const char* name) {
  const recording::Recorder* const recorder = recording::Recorder::Made();
  return recorder != nullptr ? recorder->driver().Symbol(name) : Process::Get().Real(name);
}

}  // namespace gpushare::shim

int gpushare_shim_attach(const gpushare_shim_driver* driver, const gpushare_shim_hook** hooks,
                         size_t* count) {
  using namespace gpushare::shim;
  if (driver == nullptr || hooks == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (driver->version != GPUSHARE_SHIM_ABI_VERSION) return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
  if (driver->functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (gpushare::base::GetEnv(gpushare::record::kFolderVariable).has_value()) {
    return Guarded([&] {
      const Hooks& recording = HooksOfRecording(*driver);
      instead.store(&recording, std::memory_order_release);
      NameHooks(recording, driver->functions);
      *hooks = recording.data();
      *count = recording.size();
      return CUDA_SUCCESS;
    });
  }
  // Some programs look up hundreds of entry points in a row, and each look-up comes here until an attach succeeds. The broker
  // is not asked again for every one of them.
  static std::atomic<int64_t> refused_until{INT64_MIN};
  static std::atomic<int> refused_with{CUDA_SUCCESS};
  static std::atomic<bool> logged{false};
  return Guarded([&] {
    gpushare::base::Clock& clock = gpushare::base::RealClock();
    if (clock.Now().time_since_epoch().count() < refused_until.load(std::memory_order_acquire)) {
      return static_cast<CUresult>(refused_with.load(std::memory_order_relaxed));
    }
    const absl::Status attached = Process::Attach(*driver);
    if (attached.ok()) {
      EndWithLastThreadIfMainThreadHasLeft();
      NameHooks(AllHooks(), driver->functions);
      *hooks = AllHooks().data();
      *count = AllHooks().size();
    } else if (!logged.exchange(true)) {
      const gpushare::base::NoCancel whole;
      LogRefusal(std::nullopt, std::string(attached.message()));
    }
    if (!attached.ok() && !gpushare::device::BrokerOptions::OfEnvironment().socket.empty()) {
      refused_with.store(CodeOf(attached), std::memory_order_relaxed);
      refused_until.store((clock.Now() + gpushare::Millis(500)).time_since_epoch().count(),
                          std::memory_order_release);
    }
    return CodeOf(attached);
  });
}
