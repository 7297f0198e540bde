// SPDX-License-Identifier: Apache-2.0
// Describes a copy between the host and a device to the gate. Gate::Copy() puts it on its stream, in pieces if copies of other
// tenants have to get in between.
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
  // The number of parts that can be put on the stream one by one, in order: the bytes of a line or the rows of a box.
  uint64_t parts = 0;
  uint64_t part_bytes = 1;
  // The device address of a line. A line is divided only within one allocation, so that no piece is refused after another
  // was put. 0: an array or a box, whose allocation the driver does not tell; these are divided.
  driver::DevicePtr line = 0;
  // Each call returns when its copy is complete, so it is not counted as in flight.
  bool blocks = false;
  // Other work may be waiting for the copy: a piece held for this long is let through and charged.
  Nanos longest_hold = Nanos::max();
  // The suspension of its tenant does not hold it: as AdmitCopyThoughSuspended().
  bool though_suspended = false;
};

// The bytes that a launch copies to and from the host.
struct CopyBytes {
  uint64_t to_device = 0, to_host = 0;
  bool any() const { return to_device > 0 || to_host > 0; }
};

class Gate;

// What Gate::AdmitCopies() let through, of a launch that is still to be made. It goes back unless the launch is made, also if the
// thread is unwound before, by an exception or because it is cancelled.
class AdmittedCopies {
 public:
  AdmittedCopies(Gate& gate, const CopyBytes& bytes) : gate_(gate), bytes_(bytes) {}
  ~AdmittedCopies();
  AdmittedCopies(const AdmittedCopies&) = delete;
  AdmittedCopies& operator=(const AdmittedCopies&) = delete;
  void Made() { bytes_ = {}; }

 private:
  friend class Gate;
  Gate& gate_;
  CopyBytes bytes_;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_HOST_COPY_H_
