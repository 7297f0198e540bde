// SPDX-License-Identifier: Apache-2.0
// To whom things on the GPU belong: the work on a stream, a pointer, a lease, a pool's memory.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "books/books.h"
#include "device/gpu/gpu.h"
#include "device/memory/driver_pool.h"
#include "device/memory/memory_pool.h"
#include "device/process/identity.h"
#include "device/process/runtime.h"
#include "device/process/tenant.h"
#include "device/share/virtual_device.h"
#include "device/stream/stream.h"
#include "driver/await_context.h"
#include "spec/text.h"

namespace gpushare::device {

absl::StatusOr<std::shared_ptr<VirtualDevice>> Gpu::Resolve(driver::Stream stream) {
  if (stream != nullptr) {
    if (const std::shared_ptr<Stream> bound = BoundStream(stream)) return bound->shared_device();
  }
  if (const Scope* scope = CurrentScope()) {
    if (std::shared_ptr<VirtualDevice> device = scope->tenant->DeviceOn(this)) return device;
    if (scope->tenant != runtime_->default_tenant()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the calling thread works for tenant ", Quoted(scope->tenant->name()),
                       ", which has no virtual device on GPU ", ordinal_));
    }
  }
  driver::Context context = nullptr;
  if (driver_.CurrentContext(&context) == driver::Result::kSuccess && context != nullptr) {
    base::MutexLock lock(&mutex_);
    const auto at = contexts_.find(context);
    if (at != contexts_.end()) {
      if (std::shared_ptr<VirtualDevice> device = at->second.lock()) return device;
    }
  }
  return runtime_->DefaultDevice(*this);
}

absl::StatusOr<uint64_t> Gpu::FindPointer(driver::DevicePtr pointer,
                                          std::shared_ptr<VirtualDevice>* owner) const {
  quota::Allocation allocation;
  bool known = runtime_->books().Find(pointer, &allocation);
  uint32_t slot = allocation.device;
  if (known) {
    known =
        slot >> Runtime::kSlotBits == number_;  // else it is on another GPU, or the program's own
    slot &= (1u << Runtime::kSlotBits) - 1;
  } else {
    known = unbooked_.Find(pointer, &allocation);
    slot = allocation.device;
  }
  if (!known) {
    const std::shared_ptr<MemoryPool> pool = PoolAt(pointer);
    const uint64_t bytes = pool == nullptr ? 0 : pool->SizeOf(pointer);
    if (bytes == 0) {
      return absl::NotFoundError("gpushare knows no allocation that starts at this pointer");
    }
    base::MutexLock lock(&mutex_);
    const Segment* const segment = SegmentAt(pointer);
    if (segment != nullptr && segment->pool == pool) {
      *owner = pool->device().weak_from_this().lock();
    }
    return bytes;
  }
  // Under the lock, the device in a slot exists, but it may be another one by now.
  base::MutexLock lock(&mutex_);
  VirtualDevice* const device = InSlot(slot);
  if (device != nullptr && &device->account() == allocation.account) {
    *owner = device->weak_from_this().lock();
  }
  return allocation.bytes;
}

void Gpu::BindContext(driver::Context context, const std::shared_ptr<VirtualDevice>& device) {
  base::MutexLock lock(&mutex_);
  if (device == nullptr) {
    contexts_.erase(context);
  } else {
    contexts_[context] = device;
  }
}

absl::Status Gpu::BindStream(driver::Stream native, const std::weak_ptr<Stream>& stream) {
  base::MutexLock lock(&mutex_);
  if (!streams_.emplace(native, stream).second) {
    return absl::AlreadyExistsError("the stream is bound to a virtual device already");
  }
  return absl::OkStatus();
}

void Gpu::UnbindStream(driver::Stream native) {
  base::MutexLock lock(&mutex_);
  streams_.erase(native);
}

// Returns the reference, so that if it is the last one it is released without the lock.
std::shared_ptr<Stream> Gpu::BoundStream(driver::Stream native) const {
  base::MutexLock lock(&mutex_);
  const auto at = streams_.find(native);
  return at == streams_.end() ? nullptr : at->second.lock();
}

// Null: of one that ends. The last to let go of a stream does so without the lock.
std::vector<std::shared_ptr<Stream>> Gpu::Streams() const {
  std::vector<std::shared_ptr<Stream>> all;
  base::MutexLock lock(&mutex_);
  for (const auto& [native, weak] : streams_) all.push_back(weak.lock());
  return all;
}

std::vector<std::shared_ptr<Stream>> Gpu::StreamsOf(const VirtualDevice* device,
                                                    bool* ending) const {
  std::vector<std::shared_ptr<Stream>> all = Streams();
  if (ending != nullptr) *ending = std::count(all.begin(), all.end(), nullptr) > 0;
  std::erase_if(all, [&](const std::shared_ptr<Stream>& stream) {
    return stream == nullptr || &stream->device() != device;
  });
  return all;
}

bool Gpu::AnyCaptures() const {
  if (captures_.load(std::memory_order_relaxed) != 0 || runtime_->ProgramCaptures()) return true;
  const std::vector<std::shared_ptr<Stream>> all = Streams();
  return std::any_of(all.begin(), all.end(), [](const std::shared_ptr<Stream>& stream) {
    if (stream == nullptr) return false;
    const absl::StatusOr<bool> capturing = stream->Capturing();
    return !capturing.ok() || *capturing;
  });
}

driver::Result Gpu::AwaitWork() const { return driver::AwaitContext(driver_, AnyCaptures()); }

absl::Status Gpu::AwaitWorkOrSay() const {
  const driver::Result result = AwaitWork();
  if (result != driver::Result::kOutOfMemory) return driver::ToStatus(result, "cuCtxSynchronize");
  return absl::ResourceExhaustedError(
      absl::StrCat("GPU ", ordinal_,
                   " has no room for the byte that is freed to wait for its work while a stream is "
                   "being captured; make room, or do it again after the capture"));
}

void Gpu::AddSegment(driver::DevicePtr base, uint64_t bytes, std::shared_ptr<MemoryPool> pool) {
  base::MutexLock lock(&mutex_);
  segments_[base] = {bytes, std::move(pool)};
}

void Gpu::RemoveSegment(driver::DevicePtr base) {
  std::shared_ptr<MemoryPool> last;  // destroyed without the lock
  base::MutexLock lock(&mutex_);
  const auto at = segments_.find(base);
  if (at == segments_.end()) return;
  last = std::move(at->second.pool);
  segments_.erase(at);
}

const Gpu::Segment* Gpu::SegmentAt(driver::DevicePtr pointer) const {
  auto at = segments_.upper_bound(pointer);
  if (at == segments_.begin()) return nullptr;
  --at;
  return pointer - at->first < at->second.bytes ? &at->second : nullptr;
}

std::shared_ptr<MemoryPool> Gpu::PoolAt(driver::DevicePtr pointer) const {
  base::MutexLock lock(&mutex_);
  const Segment* const segment = SegmentAt(pointer);
  return segment == nullptr ? nullptr : segment->pool;
}

void Gpu::AddDriverPool(const std::shared_ptr<DriverPool>& pool) {
  base::MutexLock lock(&mutex_);
  driver_pools_[pool.get()] = pool;
  HasUnbooked();
}

void Gpu::RemoveDriverPool(const DriverPool* pool) {
  std::shared_ptr<DriverPool> last;  // destroyed without the lock
  base::MutexLock lock(&mutex_);
  const auto at = driver_pools_.find(pool);
  if (at == driver_pools_.end()) return;
  last = std::move(at->second);
  driver_pools_.erase(at);
}

std::vector<std::shared_ptr<DriverPool>> Gpu::DriverPools() const {
  std::vector<std::shared_ptr<DriverPool>> pools;
  base::MutexLock lock(&mutex_);
  for (const auto& [at, pool] : driver_pools_) pools.push_back(pool);
  return pools;
}

// The driver does not report when frees in stream order have taken effect, and that may be after the virtual device is gone.
void Gpu::TrimUnusedPools() {
  for (const std::shared_ptr<DriverPool>& pool : DriverPools()) pool->TrimIfUnused();
}

bool Gpu::PutBack(driver::DevicePtr pointer, const quota::Allocation& allocation) {
  driver::DevicePtr base = 0;
  size_t bytes = 0;
  const driver::Result found = driver_.AddressRange(&base, &bytes, pointer);
  if (found == driver::Result::kInvalidValue || found == driver::Result::kNotFound) return false;
  quota::Allocation newer;
  if (unbooked_.Insert(pointer, allocation, &newer) !=
      quota::PointerTable::InsertResult::kReplaced) {
    return true;
  }
  // The address has already been allocated again.
  static_cast<void>(unbooked_.Insert(pointer, newer));
  return false;
}

Gpu::ThreadLease Gpu::EnterLease(uint64_t thread, VirtualDevice* device,
                                 const std::shared_ptr<HeldLease>& held) {
  base::MutexLock lock(&mutex_);
  const auto [at, added] = leases_.try_emplace(thread, ThreadLease{device, held, 1});
  if (added) return {};
  if (at->second.device == device) ++at->second.count;
  return at->second;
}

bool Gpu::LeaveLease(uint64_t thread) {
  base::MutexLock lock(&mutex_);
  const auto at = leases_.find(thread);
  if (at == leases_.end() || --at->second.count > 0) return false;
  leases_.erase(at);
  return true;
}

VirtualDevice* Gpu::LeaseOf(uint64_t thread) const {
  base::MutexLock lock(&mutex_);
  const auto at = leases_.find(thread);
  return at == leases_.end() ? nullptr : at->second.device;
}

}  // namespace gpushare::device
