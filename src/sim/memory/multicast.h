// SPDX-License-Identifier: Apache-2.0
// Multicast objects: a write to their addresses goes to the memory of every device of a team.
#ifndef GPUSHARE_SIM_MEMORY_MULTICAST_H_
#define GPUSHARE_SIM_MEMORY_MULTICAST_H_

#include <cstdint>
#include <vector>

#include "sim/clock/clock.h"

namespace gpushare::sim {

class Device;
struct Allocation;

struct MulticastTeam {
  struct Binding {
    Allocation* memory;  // counted among its mappings
    uint64_t offset, size, memory_offset;
  };
  unsigned wanted = 0;
  std::vector<Device*> devices;
  WaitList complete;  // callers that wait for the last device
  std::vector<Binding> bindings;

  bool Has(const Device* device) const;
  // The bytes of the nth device's memory at an offset; `length` is reduced to the contiguous part. Null when nothing is bound
  // there.
  uint8_t* Find(size_t nth, uint64_t offset, uint64_t* length) const;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_MULTICAST_H_
