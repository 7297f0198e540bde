// SPDX-License-Identifier: Apache-2.0
// How a virtual device's memory is taken, behind
// gpushare_allocator: a strategy, and what to do over the quota.
#ifndef GPUSHARE_DEVICE_ALLOCATOR_H_
#define GPUSHARE_DEVICE_ALLOCATOR_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/driver_pool.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "device/virtual_device.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  // Unimplemented for strategies that are not offered yet, by name.
  static absl::StatusOr<std::shared_ptr<Allocator>> Create(
      std::shared_ptr<VirtualDevice> device, const gpushare_allocator_options& options);

  ~Allocator();

  // In the order of `stream`; null: of none. Where the driver allocates each time, memory follows every
  // stream, and a free waits.
  absl::StatusOr<driver::DevicePtr> Allocate(uint64_t bytes, Stream* stream) const;
  absl::Status Free(driver::DevicePtr pointer, Stream* stream) const;

  // Of a strategy that has a pool; FailedPrecondition for the others.
  absl::StatusOr<gpushare_allocator_stats> Stats() const;
  absl::Status Trim(uint64_t bytes) const;

 private:
  Allocator(std::shared_ptr<VirtualDevice> device, const gpushare_allocator_options& options)
      : device_(std::move(device)), options_(options) {}
  absl::StatusOr<driver::DevicePtr> AllocateOnce(const VirtualDevice::Request& request,
                                                 Stream* stream) const;
  absl::Status NeedsPool() const;
  absl::Status CheckStream(const Stream* stream) const;

  const std::shared_ptr<VirtualDevice> device_;
  const gpushare_allocator_options options_;
  // Of those strategies; none: each allocation is one of the driver's.
  std::shared_ptr<MemoryPool> pool_;
  std::shared_ptr<DriverPool> driver_pool_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_ALLOCATOR_H_
