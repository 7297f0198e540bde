// SPDX-License-Identifier: Apache-2.0
// What a copy between the host and a device tells the gate: Gate::Copy() puts it on its stream, in pieces where others are
// to get in between.
//
//   const Copied copied = gate->Copy(*stream, {.direction = CopyDirection::kHostToDevice, .parts = bytes, .line = to},
//                                    [&](uint64_t first, uint64_t count) {
//                                      result = driver->CopyHtoDAsync(to + first, from + first, count, handle);
//                                      return result == driver::Result::kSuccess;
//                                    });
#ifndef GPUSHARE_GATE_HOST_COPY_H_
#define GPUSHARE_GATE_HOST_COPY_H_

#include <cstdint>

#include "base/time.h"
#include "driver/driver.h"
#include "gate/copy_supply.h"

namespace gpushare::gate {

struct HostCopy {
  CopyDirection direction = CopyDirection::kHostToDevice;
  // What can be put on the stream one by one, in this order: the bytes of a line, the rows of a box.
  uint64_t parts = 0;
  uint64_t part_bytes = 1;
  // Where a line lies on the device. It is divided within one allocation only, so that no piece is refused after another
  // went. 0: of arrays and of boxes the driver does not say, and they are divided.
  driver::DevicePtr line = 0;
  // Each call comes back when what it copies is there: nobody is told that it is in flight.
  bool blocks = false;
  // Others may be waiting for it: held so long a piece passes, and is charged.
  Nanos longest_hold = Nanos::max();
};

// What of a launch crosses to and from the host.
struct CopyBytes {
  uint64_t to_device = 0, to_host = 0;
  bool any() const { return to_device > 0 || to_host > 0; }
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_HOST_COPY_H_
