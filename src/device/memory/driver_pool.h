// SPDX-License-Identifier: Apache-2.0
// The driver's stream-ordered pool of one virtual device, within its quota.
//
// What an allocation makes the pool grow by is known after the call only. So what it lacks is reserved before,
// and what it did grow by is charged after; if that is more than there is left, the allocation is taken back at
// once, before anybody can have used it, and the request needs as much as that. The charge is what the pool has
// reserved of the device, not what is used of it. The driver keeps in the pool what is freed; it goes back when
// the quota is short. Frees come through their streams without a word, so while somebody waits a function on the host
// behind them tells; who waits asks each millisecond besides.
//
// The driver bounds a pool by the quota as well. That bound cannot change: a raised quota begins a new pool
// beside the old, which goes when it is empty.
//
// A free without a stream follows the stream that the memory was allocated for, also when that is gone. There
// are two streams of the pool's own: for memory of no stream, on which nothing ever waits, and for frees that
// wait for the ends of streams that are gone.
//
// driver_pool.cc has its life, _charge what it holds of the quota, _allocate allocations and frees, _wait waiting.
//
// Life: a reason for the virtual device to exist, while anything is reserved. Locks: one allocation at a time,
// by a lock that waits on the clock, since it spans calls of the driver; nothing waits for memory under it.
#ifndef GPUSHARE_DEVICE_MEMORY_DRIVER_POOL_H_
#define GPUSHARE_DEVICE_MEMORY_DRIVER_POOL_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock_lock.h"
#include "base/sync.h"
#include "device/memory/memory_order.h"
#include "device/share/virtual_device.h"
#include "device/stream/stream.h"
#include "device/stream/stream_order.h"
#include "driver/driver.h"
#include "driver/relaxed_capture.h"
#include "gpushare/c/gpushare.h"
#include "quota/pointer_table.h"

namespace gpushare::device {

class DriverPool : public std::enable_shared_from_this<DriverPool> {
 public:
  // Unimplemented: the driver or the device has no such pools.
  static absl::StatusOr<std::shared_ptr<DriverPool>> Create(VirtualDevice& device);
  ~DriverPool() = default;
  DriverPool(const DriverPool&) = delete;
  DriverPool& operator=(const DriverPool&) = delete;

  // FailedPrecondition while the stream captures.
  absl::StatusOr<driver::DevicePtr> Allocate(const VirtualDevice::Request& request,
                                             const MemoryOrder& order);
  // `allocation` was taken out of the pointer table. May end the virtual device. In no order: behind the stream
  // that it was allocated for, unless that is foreign.
  absl::Status FreeTaken(driver::DevicePtr pointer, const quota::Allocation& allocation,
                         const MemoryOrder& order);
  // An allocation is gone, and no longer in the table. May end the virtual device.
  void Ended();

  // An allocator comes or goes. Without any, what is unused goes back at every free.
  void Enter() { allocators_.fetch_add(1); }
  void Leave();

  // Who waits is told of what was freed before, when its stream has come so far.
  void TellOfFreed();
  // Gives unused memory back, until it is `enough` bytes; returns how many, and in `refused` what the driver would not do.
  // The virtual device is known to be alive, here and in Refresh() and Stats().
  uint64_t Trim(uint64_t enough, absl::Status* refused = nullptr);
  void Refresh();  // the driver may have given memory back unasked
  gpushare_allocator_stats Stats();
  bool holds() const { return held_.load(std::memory_order_relaxed); }  // the virtual device

  // Gives unused memory back where no allocator is left; also when the virtual device is gone.
  void TrimIfUnused();
  // For a GPU that closes: no longer charged, and given to the driver or left to it, whose bytes are told.
  uint64_t Abandon(bool give);
  // The virtual device goes, and nothing is reserved.
  void End();

 private:
  // One pool of the driver's.
  struct Native {
    driver::MemPool pool;
    uint64_t most;  // bytes that it may reserve; 0: no bound
  };
  // What a try came to.
  struct Tried {
    absl::Status status;  // an error that is not the quota's
    driver::DevicePtr pointer = 0;
    uint64_t needs = 0;  // with neither: room for so many bytes
  };

  explicit DriverPool(VirtualDevice& device);
  absl::Status Start();
  void Destroy();
  driver::Result AddNative(uint64_t most);

  // Runs `call` with allocating_, then takes or drops the reason for the virtual device to exist. The last may
  // end that. When it has ended, runs `otherwise` instead.
  template <typename Call, typename Otherwise>
  auto Locked(const Call& call, const Otherwise& otherwise) -> decltype(call());
  template <typename Call>
  auto Locked(const Call& call) -> decltype(call()) {
    return Locked(call, [] { return decltype(call()){}; });
  }

  // Whether the driver said that the context is lost, and the memory with it. From then on nothing is charged.
  bool IsLost(driver::Result result);

  // With allocating_, these six.
  driver::Result Read(driver::Driver::PoolUsage* usage, bool peaks) const;
  // Brings the charge to what is reserved; tells by how much it fell, and what was read.
  uint64_t Settle(driver::Driver::PoolUsage* usage = nullptr, driver::Result* result = nullptr);
  uint64_t TrimLocked(uint64_t enough, absl::Status* refused = nullptr);
  bool Charge(uint64_t bytes, bool behind_waiters);  // on the account; never waits
  class Trial;
  // `held` bytes are reserved on the account, and settled here. `order` null: of no stream.
  Tried Try(const VirtualDevice::Request& request, StreamOrder* order, uint64_t held);
  void TakeBack(driver::DevicePtr pointer, driver::Stream native);

  // Try() with allocating_.
  Tried TryOnce(const VirtualDevice::Request& request, StreamOrder* order, uint64_t held);
  Tried HasEnded(uint64_t held);  // with which it can no longer serve
  absl::StatusOr<driver::DevicePtr> Get(const VirtualDevice::Request& request, StreamOrder* order);
  absl::StatusOr<driver::DevicePtr> Wait(const VirtualDevice::Request& request, StreamOrder* order,
                                         uint64_t needs);
  absl::Status List(driver::DevicePtr pointer, uint64_t bytes, const MemoryOrder& order);
  class Unlisted;
  bool Captures(driver::Stream native) const;
  // driver_pool_wait.cc. Has who waits look when the stream has come so far.
  bool IsAwaited() const;
  void TellWaiters(driver::Stream native);
  void TellUnlessReached(driver::Stream native);
  void TellOfPlace();
  void Freed(const std::shared_ptr<StreamOrder>& order);

  VirtualDevice& device_;
  Gpu& gpu_;
  driver::Stream own_ = nullptr;
  driver::Stream behind_gone_ = nullptr;

  std::atomic<uint32_t> allocating_{0};  // a ClockLock, of what follows
  std::vector<Native> natives_;          // the newest last
  uint64_t charged_ = 0;
  bool ended_ = false;

  std::atomic<bool> lost_{false};  // with its context
  std::atomic<bool> held_{false};  // a reason for the virtual device to exist
  std::atomic<uint64_t> allocations_{0};
  std::atomic<uint32_t> allocators_{0};
  std::atomic<uint64_t> served_{0},
      grown_{0};  // allocations so far, and those that made a pool grow

  mutable base::Mutex mutex_;
  // Of what was allocated for a stream.
  std::unordered_map<driver::DevicePtr, std::shared_ptr<StreamOrder>> orders_
      ABSL_GUARDED_BY(mutex_);
  std::deque<const void*> waiters_ ABSL_GUARDED_BY(mutex_);  // in the order in which they came
  // Streams that frees were given to since all were last known to be over, and the next who waits is to be told by.
  std::vector<std::shared_ptr<StreamOrder>> freed_on_ ABSL_GUARDED_BY(mutex_);
};

template <typename Call, typename Otherwise>
auto DriverPool::Locked(const Call& call, const Otherwise& otherwise) -> decltype(call()) {
  const std::shared_ptr<DriverPool> self = weak_from_this().lock();  // destructors call this
  // Whatever the call throws, the virtual device is held while something is charged.
  struct Last {
    DriverPool& pool;
    bool goes = false;
    ~Last() {
      if (goes) pool.device_.Unhold();  // may end it
    }
  } last{*this};
  const ContextScope current(gpu_);
  const driver::RelaxedCapture relaxed(gpu_.driver());
  const base::ClockLock lock(gpu_.clock(), allocating_);
  if (ended_) return otherwise();
  struct HoldWhileCharged {
    DriverPool& pool;
    Last& last;
    ~HoldWhileCharged() {
      const bool hold = pool.charged_ != 0;
      if (hold == pool.held_.load(std::memory_order_relaxed)) return;
      pool.held_.store(hold, std::memory_order_relaxed);
      if (hold) pool.device_.Hold();
      last.goes = !hold;
    }
  } const hold{*this, last};
  return call();
}

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_DRIVER_POOL_H_
