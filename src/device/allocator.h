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
#include "device/virtual_device.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  // Unimplemented for strategies that are not offered yet, by name.
  static absl::StatusOr<std::shared_ptr<Allocator>> Create(
      std::shared_ptr<VirtualDevice> device, const gpushare_allocator_options& options);

  absl::StatusOr<driver::DevicePtr> Allocate(uint64_t bytes) const;
  absl::Status Free(driver::DevicePtr pointer) const;

 private:
  Allocator(std::shared_ptr<VirtualDevice> device, const gpushare_allocator_options& options)
      : device_(std::move(device)), options_(options) {}

  const std::shared_ptr<VirtualDevice> device_;
  const gpushare_allocator_options options_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_ALLOCATOR_H_
