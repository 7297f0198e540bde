// SPDX-License-Identifier: Apache-2.0
// The driver's stream-ordered pool of one virtual device, within its quota.
//
// What an allocation makes the pool grow by is known after the call only. So as much as the pool lacks, in
// the steps in which it has grown so far, is reserved before; what it did grow by is charged after; and if
// that is more than there is left, the allocation is taken back and refused. The charge is what the pool has
// reserved of the device, not what is used of it. The driver keeps what is freed in the pool; it goes back
// when the quota is short.
//
// A free without a stream follows the stream that the memory was allocated for. There are two streams of the
// pool's own: for memory of no stream, and for memory of streams that are gone, whose ends it waits for.
//
// Locks: one allocation at a time, by a lock that waits on the clock, since it spans calls of the driver.
#ifndef GPUSHARE_DEVICE_DRIVER_POOL_H_
#define GPUSHARE_DEVICE_DRIVER_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "device/stream.h"
#include "device/virtual_device.h"
#include "driver/driver.h"
#include "gpushare/c/gpushare.h"
#include "quota/pointer_table.h"

namespace gpushare::device {

class DriverPool : public FollowsStreams, public std::enable_shared_from_this<DriverPool> {
 public:
  // Unimplemented: the driver or the device has no such pools.
  static absl::StatusOr<std::shared_ptr<DriverPool>> Create(VirtualDevice& device);
  ~DriverPool() override = default;
  DriverPool(const DriverPool&) = delete;
  DriverPool& operator=(const DriverPool&) = delete;

  absl::StatusOr<driver::DevicePtr> Allocate(const VirtualDevice::Request& request, Stream* stream);
  // `allocation` was taken out of the pointer table. May end the virtual device.
  absl::Status FreeTaken(driver::DevicePtr pointer, const quota::Allocation& allocation,
                         Stream* stream);

  // The virtual device goes, and with it the account: nothing else is called afterwards.
  void End();

  // Gives unused memory back, until it is `enough` bytes; returns how many. Waits for frees without a stream.
  uint64_t Trim(uint64_t enough);
  void Refresh();  // the driver may have given memory back unasked
  gpushare_allocator_stats Stats();

  void Watch(const std::shared_ptr<Stream>& stream) override;
  void StreamEnds(uint64_t id, driver::Stream native) override;

 private:
  explicit DriverPool(VirtualDevice& device) : device_(device), gpu_(device.gpu()) {}
  absl::Status Start();

  driver::Driver::PoolUsage Read() const;
  // Null and OK: it grew by more than was reserved and is left, and it may be tried again.
  absl::StatusOr<driver::DevicePtr> AllocateOnce(const VirtualDevice::Request& request,
                                                 driver::Stream native, bool last);
  // Charges what is lacking, which may become less, waiting for it.
  absl::Status ReserveBefore(VirtualDevice::Request* growth, uint64_t asked);
  // With the lock: brings the charge down to what is reserved, and tells by how much.
  uint64_t Settle();
  // How much the pool lacks for so many bytes, in its steps.
  uint64_t Lacks(uint64_t bytes) const;
  driver::Stream StreamOf(driver::DevicePtr pointer);

  VirtualDevice& device_;
  Gpu& gpu_;
  driver::MemPool native_ = nullptr;
  driver::Stream own_ = nullptr;
  driver::Stream behind_gone_ = nullptr;

  std::atomic<uint32_t> allocating_{0};  // a ClockLock
  uint64_t charged_ = 0;                 // under it, as is step_
  std::atomic<uint64_t> step_{0};        // the least that the pool has grown by

  base::Mutex mutex_;
  // Of what was allocated for a stream.
  std::unordered_map<driver::DevicePtr, std::weak_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> allocations_{0};
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_DRIVER_POOL_H_
