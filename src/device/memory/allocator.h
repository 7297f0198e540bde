// SPDX-License-Identifier: Apache-2.0
// How a virtual device's memory is taken, behind
// gpushare_allocator: a strategy, and what to do over the quota.
#ifndef GPUSHARE_DEVICE_MEMORY_ALLOCATOR_H_
#define GPUSHARE_DEVICE_MEMORY_ALLOCATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/memory/driver_pool.h"
#include "device/memory/memory_order.h"
#include "device/memory/memory_pool.h"
#include "device/memory/swappable_memory.h"
#include "device/share/virtual_device.h"
#include "device/stream/stream.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  // Unimplemented for strategies that are not offered yet, by name.
  static absl::StatusOr<std::shared_ptr<Allocator>> Create(
      std::shared_ptr<VirtualDevice> device, const gpushare_allocator_options& options);

  ~Allocator();

  // Where the driver allocates each time, memory follows every stream, and a free waits.
  struct Request {
    uint64_t bytes = 0;
    MemoryOrder order = {};
    // Over the quota, after a callback has given up, it waits for so long; nothing: as the options say.
    std::optional<int64_t> timeout_ns = std::nullopt;
    uint64_t alignment = 0;  // 0: kAlignment
  };
  // What every strategy gives.
  static constexpr uint64_t kAlignment = 256;
  absl::StatusOr<driver::DevicePtr> Allocate(const Request& request) const;
  absl::Status Free(driver::DevicePtr pointer, const MemoryOrder& order) const;
  // Those who wait in Allocate() are answered Cancelled.
  void CallOffWaits() { calls_off_.fetch_add(1); }

  // The order of a stream by its native handle, that of a foreign one among them. `keeps` is for as long as the
  // order is used.
  absl::StatusOr<MemoryOrder> OrderOf(driver::Stream native, std::shared_ptr<Stream>* keeps) const;

  // Of a strategy that has a pool; FailedPrecondition for the others.
  absl::StatusOr<gpushare_allocator_stats> Stats() const;
  absl::Status Trim(uint64_t bytes) const;

 private:
  Allocator(std::shared_ptr<VirtualDevice> device, const gpushare_allocator_options& options)
      : device_(std::move(device)), options_(options) {}
  absl::StatusOr<driver::DevicePtr> AllocateOnce(const VirtualDevice::Request& request,
                                                 const MemoryOrder& order, Nanos patience) const;
  int AskReclaim(uint64_t asked, uint64_t left) const;
  absl::Status NeedsPool() const;
  absl::Status Check(const MemoryOrder& order) const;

  const std::shared_ptr<VirtualDevice> device_;
  const gpushare_allocator_options options_;
  std::atomic<uint64_t> calls_off_{0};
  // Of those strategies; none: each allocation is one of the driver's.
  std::shared_ptr<MemoryPool> pool_;
  std::shared_ptr<DriverPool> driver_pool_;
  // Of `swappable`, which keeps no pool.
  std::shared_ptr<SwappableMemory> swappable_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_ALLOCATOR_H_
