// SPDX-License-Identifier: Apache-2.0
// The life of a driver's pool: how it begins, whom it keeps, how it ends.
#include "device/memory/driver_pool.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace gpushare::device {

DriverPool::DriverPool(VirtualDevice& device) : device_(device), gpu_(device.gpu()) {}

absl::StatusOr<std::shared_ptr<DriverPool>> DriverPool::Create(VirtualDevice& device) {
  const std::shared_ptr<DriverPool> pool(new DriverPool(device));
  const ContextScope current(pool->gpu_);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const driver::RelaxedCapture relaxed(pool->gpu_.driver());
  const absl::Status started = pool->Start();
  if (!started.ok()) {
    pool->Destroy();
    return started;
  }
  pool->gpu_.AddDriverPool(pool);
  return pool;
}

absl::Status DriverPool::Start() {
  const driver::Driver& driver = gpu_.driver();
  const quota::Account& account = device_.account();
  const bool has_quota = account.parent() == nullptr || device_.parent() != nullptr;
  const driver::Result result = AddNative(has_quota ? account.most() : 0);
  if (result == driver::Result::kNotSupported) {
    return absl::UnimplementedError(
        absl::StrCat("allocator strategy 'pool': GPU ", gpu_.ordinal(),
                     " or its driver has no stream-ordered pools; use 'suballocating'"));
  }
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(result, "cuMemPoolCreate"));
  for (driver::Stream* stream : {&own_, &behind_gone_}) {
    GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.CreateStream(stream, /*priority=*/0),
                                              "cuStreamCreateWithPriority"));
  }
  return absl::OkStatus();
}

driver::Result DriverPool::AddNative(uint64_t most) {
  natives_.reserve(natives_.size() + 1);
  Native made{nullptr, most};
  const driver::Driver& driver = gpu_.driver();
  driver::Result result = driver.CreatePool(&made.pool, gpu_.ordinal(), made.most);
  if (result == driver::Result::kInvalidValue && made.most != 0) {
    made.most = 0;  // older drivers know no bound
    result = driver.CreatePool(&made.pool, gpu_.ordinal(), made.most);
  }
  if (result == driver::Result::kSuccess) natives_.push_back(made);
  return result;
}

void DriverPool::Destroy() {
  const driver::Driver& driver = gpu_.driver();
  for (driver::Stream* stream : {&own_, &behind_gone_}) {
    if (*stream != nullptr) static_cast<void>(driver.DestroyStream(*stream));
    *stream = nullptr;
  }
  for (const Native& native : natives_) static_cast<void>(driver.DestroyPool(native.pool));
  natives_.clear();
}

void DriverPool::End() {
  const ContextScope current(gpu_);
  const driver::RelaxedCapture relaxed(gpu_.driver());
  {
    const base::ClockLock lock(gpu_.clock(), allocating_);
    if (ended_) return;
    ended_ = true;
    Destroy();
  }
  gpu_.RemoveDriverPool(this);
}

uint64_t DriverPool::Abandon(bool give) {
  const std::shared_ptr<DriverPool> self = shared_from_this();
  uint64_t left = 0;
  bool held;
  {
    const base::ClockLock lock(gpu_.clock(), allocating_);
    if (ended_) return 0;
    ended_ = true;
    if (give) {
      Destroy();
    } else {
      left = charged_;
    }
    device_.account().Release(std::exchange(charged_, 0));
    held = held_.exchange(false);
  }
  gpu_.RemoveDriverPool(this);
  if (held) device_.Unhold();
  return left;
}

void DriverPool::Leave() {
  if (allocators_.fetch_sub(1) == 1) Trim(UINT64_MAX);
}

}  // namespace gpushare::device
