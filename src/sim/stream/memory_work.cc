// SPDX-License-Identifier: Apache-2.0
#include "sim/stream/memory_work.h"

#include "sim/device/device.h"
#include "sim/memory/pool.h"

namespace gpushare::sim {

void FinishMemory(const MemoryWork& work) {
  if (work.object == nullptr) return;
  switch (work.kind) {
    case MemoryWork::Kind::kPoolFree:
      MemoryPool::FinishFree(static_cast<MemoryPool::Pending*>(work.object));
      break;
    case MemoryWork::Kind::kFree: {
      DeviceMemory& memory = static_cast<Device*>(work.object)->memory;
      // The block may have gone with its context, and its address may have been reused.
      const Block* const block = memory.Find(work.address);
      if (block != nullptr && block->id == work.id) memory.Free(work.address);
      break;
    }
  }
}

}  // namespace gpushare::sim
