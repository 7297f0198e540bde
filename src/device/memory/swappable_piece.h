// SPDX-License-Identifier: Apache-2.0
// One swappable allocation: addresses that stay, and memory of the device behind them that comes and goes.
//
// Its bytes are on the device, or in the host's memory while there is some (`host`): never in between. Each step does what is
// missing of it, so that one which the driver refused in the middle is tried again by the same call.
#ifndef GPUSHARE_DEVICE_MEMORY_SWAPPABLE_PIECE_H_
#define GPUSHARE_DEVICE_MEMORY_SWAPPABLE_PIECE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/time.h"
#include "driver/driver.h"

namespace gpushare::device {

struct SwappablePiece {
  uint64_t bytes = 0;         // in whole granules
  Nanos patience = Nanos(0);  // how long its return may wait for room
  driver::DevicePtr pointer = 0;
  driver::PhysicalMemory physical = 0;  // charged while there is some
  bool mapped = false;
  void* host = nullptr;    // its bytes, while they are out
  bool also_here = false;  // then they are on the device as well

  bool out() const { return host != nullptr; }

  struct [[nodiscard]] Outcome {
    driver::Result result = driver::Result::kSuccess;
    const char* call = "";
    bool ok() const { return result == driver::Result::kSuccess; }
    absl::Status status() const { return driver::ToStatus(result, call); }
  };
  Outcome Attach(const driver::Driver& driver, int ordinal);  // memory, at its addresses
  Outcome Detach(const driver::Driver& driver);               // nobody uses it
  Outcome FreeAddresses(const driver::Driver& driver);        // detached
};

inline SwappablePiece::Outcome SwappablePiece::Attach(const driver::Driver& driver, int ordinal) {
  using driver::Result;
  if (pointer == 0) {
    const Result result = driver.ReserveAddresses(&pointer, bytes);
    if (result != Result::kSuccess) return {result, "cuMemAddressReserve"};
  }
  if (physical == 0) {
    const Result result = driver.CreateMemory(&physical, bytes, ordinal);
    if (result != Result::kSuccess) return {result, "cuMemCreate"};
  }
  if (!mapped) {
    const Result result = driver.MapMemory(pointer, bytes, physical);
    if (result != Result::kSuccess) return {result, "cuMemMap"};
    mapped = true;
  }
  return {driver.AllowAccess(pointer, bytes, ordinal), "cuMemSetAccess"};
}

inline SwappablePiece::Outcome SwappablePiece::Detach(const driver::Driver& driver) {
  using driver::Result;
  if (mapped) {
    const Result result = driver.UnmapMemory(pointer, bytes);
    if (result != Result::kSuccess) return {result, "cuMemUnmap"};
    mapped = also_here = false;
  }
  if (physical != 0) {
    const Result result = driver.ReleaseMemory(physical);
    if (result != Result::kSuccess) return {result, "cuMemRelease"};
    physical = 0;
  }
  return {};
}

inline SwappablePiece::Outcome SwappablePiece::FreeAddresses(const driver::Driver& driver) {
  if (pointer == 0) return {};
  const driver::Result result = driver.FreeAddresses(pointer, bytes);
  if (result == driver::Result::kSuccess) pointer = 0;
  return {result, "cuMemAddressFree"};
}

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_SWAPPABLE_PIECE_H_
