// SPDX-License-Identifier: Apache-2.0
// Copies in bulk between the device and pinned memory of the host, for memory of a virtual device that is suspended.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<BulkCopy> copy, BulkCopy::Create(driver, gate));
//   GPUSHARE_RETURN_IF_ERROR(copy->ToHost(host, pointer, bytes));
//   GPUSHARE_RETURN_IF_ERROR(copy->Finish());   // now it is there
//
// They go in pieces, each let through by the tenant's gate, and no more than two are in flight: copies of others come in
// between, and the limits of the tenant hold.
//
// Threading: one thread at a time, with the GPU's primary context current.
#ifndef GPUSHARE_DEVICE_MEMORY_BULK_COPY_H_
#define GPUSHARE_DEVICE_MEMORY_BULK_COPY_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "driver/driver.h"
#include "gate/engine.h"

namespace gpushare::device {

class BulkCopy {
 public:
  static constexpr uint64_t kPiece = uint64_t{8} << 20;

  static absl::StatusOr<std::unique_ptr<BulkCopy>> Create(const driver::Driver& driver,
                                                          gate::Gate& gate);
  // Waits for what is in flight.
  ~BulkCopy();
  BulkCopy(const BulkCopy&) = delete;
  BulkCopy& operator=(const BulkCopy&) = delete;

  absl::Status ToHost(void* host, driver::DevicePtr pointer, uint64_t bytes) {
    return Copy(gate::CopyDirection::kDeviceToHost, host, pointer, bytes);
  }
  absl::Status ToDevice(driver::DevicePtr pointer, void* host, uint64_t bytes) {
    return Copy(gate::CopyDirection::kHostToDevice, host, pointer, bytes);
  }
  // Until all that was given is there.
  absl::Status Finish();

 private:
  static constexpr size_t kInFlight = 2;

  BulkCopy(const driver::Driver& driver, gate::Gate& gate) : driver_(driver), gate_(gate) {}
  absl::Status Start();
  absl::Status Copy(gate::CopyDirection direction, void* host, driver::DevicePtr pointer,
                    uint64_t bytes);

  const driver::Driver& driver_;
  gate::Gate& gate_;
  driver::Stream stream_ = nullptr;
  std::array<driver::Event, kInFlight> ends_{};  // of the pieces, in turn
  uint64_t given_ = 0;                           // pieces
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_BULK_COPY_H_
