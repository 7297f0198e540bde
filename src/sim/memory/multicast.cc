// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/multicast.h"

#include <algorithm>

#include "sim/memory/virtual_memory.h"

namespace gpushare::sim {

bool MulticastTeam::Has(const Device* device) const {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

uint8_t* MulticastTeam::Find(size_t nth, uint64_t offset, uint64_t* length) const {
  for (const Binding& binding : bindings) {
    if (binding.memory->device != devices[nth] || offset - binding.offset >= binding.size) continue;
    const uint64_t at = offset - binding.offset;
    *length = std::min(*length, binding.size - at);
    return binding.memory->storage.bytes() + binding.memory_offset + at;
  }
  return nullptr;
}

}  // namespace gpushare::sim
