// SPDX-License-Identifier: Apache-2.0
// In whose order memory is taken or given back: of a stream that gpushare knows, of one that it does not know, or
// of none.
//
//   MemoryOrder none;
//   MemoryOrder known{.stream = stream};
//   MemoryOrder foreign = ForeignOrder(driver, native);   // a StatusOr
//
// Nobody tells when a foreign stream ends, and its handle may come again. So it is told apart by the driver's
// number for it, and its handle is used within calls that name it only.
#ifndef GPUSHARE_DEVICE_MEMORY_MEMORY_ORDER_H_
#define GPUSHARE_DEVICE_MEMORY_MEMORY_ORDER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "driver/driver.h"

namespace gpushare::device {

class Stream;

struct MemoryOrder {
  Stream* stream = nullptr;
  uint64_t number = 0;  // of a foreign stream; 0: not one
  driver::Stream native = nullptr;

  bool foreign() const { return number != 0; }
  bool none() const { return stream == nullptr && number == 0; }
};

// Of a stream that no virtual device is bound to. Its context is current.
inline absl::StatusOr<MemoryOrder> ForeignOrder(const driver::Driver& driver,
                                                driver::Stream native) {
  uint64_t number = 0;
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.StreamId(native, &number), "cuStreamGetId"));
  // The driver counts from 1 on or from 0.
  return MemoryOrder{.number = number + 1, .native = native};
}

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_MEMORY_ORDER_H_
