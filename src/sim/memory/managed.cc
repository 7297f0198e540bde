// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/managed.h"

#include <algorithm>

#include "sim/memory/range_map.h"
#include "sim/state.h"

namespace gpushare::sim {
namespace {

// The requested bytes in a run of pages.
uint64_t Inside(const ManagedRange& range, uint64_t offset, uint64_t bytes) {
  return std::min(bytes, range.block->size - offset);
}

// What a run of pages takes of a device: all that is behind the requested bytes counts with the last run.
uint64_t Charged(const ManagedRange& range, uint64_t offset, uint64_t bytes) {
  return offset + bytes < range.block->size ? bytes : range.taken - offset;
}

}  // namespace

ManagedRange* ManagedMemory::Allocate(Device* device, uint64_t bytes, Context* context) {
  const uint64_t taken = device->memory.TakenBy(bytes);
  if (!device->memory.Charge(taken)) return nullptr;
  if (arena_ == nullptr) {
    // Pages prefetched to the host are charged to no device, so more than the devices' capacity may be live.
    uint64_t capacity = 0;
    for (const auto& one : state().devices) capacity += 2 * one->memory.capacity();
    arena_ = std::make_unique<DeviceMemory>(capacity, 0, kPage, DeviceMemory::Visible::kToHost);
  }
  Block* const block = arena_->Allocate(bytes, context);
  if (block == nullptr) {
    device->memory.Return(taken);
    return nullptr;
  }
  block->touched = true;  // the host may have written it without our knowing
  block->id = device->memory.NextId();
  ManagedRange& range = ranges_[block->address];
  range.block = block;
  range.taken = taken;
  range.device = device;
  range.pages[0].device = device;
  return &range;
}

void ManagedMemory::Forget(const ManagedRange& range) {
  for (auto run = range.pages.begin(); run != range.pages.end(); ++run) {
    const auto next = std::next(run);
    const uint64_t end = next == range.pages.end() ? range.taken : next->first;
    if (run->second.device != nullptr) run->second.device->memory.Return(end - run->first);
  }
  arena_->Free(range.block->address);
}

bool ManagedMemory::Free(uint64_t address) {
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) return false;
  Forget(found->second);
  ranges_.erase(found);
  return true;
}

void ManagedMemory::FreeAllOf(const Context* context) {
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    if (at->second.block->context == context) {
      Forget(at->second);
      at = ranges_.erase(at);
    } else {
      ++at;
    }
  }
}

void ManagedMemory::Clear() {
  ranges_.clear();
  arena_.reset();
}

ManagedRange* ManagedMemory::Find(uint64_t address) {
  if (!InRange(address)) return nullptr;
  const auto at = LastAtOrBefore(ranges_, address);
  if (at == ranges_.end()) return nullptr;
  ManagedRange& range = at->second;
  return address - at->first < range.block->size ? &range : nullptr;
}

ManagedRange* ManagedMemory::Find(uint64_t address, uint64_t bytes) {
  ManagedRange* const range = Find(address);
  if (range == nullptr || bytes == 0) return nullptr;
  return bytes <= range->block->size - (address - range->block->address) ? range : nullptr;
}

uint64_t ManagedMemory::Missing(ManagedRange* range, uint64_t offset, uint64_t bytes,
                                const Device* to) {
  uint64_t missing = 0;
  range->ForPages(offset, bytes, [&](const ManagedPages& pages, uint64_t from, uint64_t length) {
    if (pages.device != to && !pages.discarded) missing += Inside(*range, from, length);
  });
  return missing;
}

uint64_t ManagedMemory::Migrate(ManagedRange* range, uint64_t offset, uint64_t bytes, Device* to) {
  uint64_t moved = 0, room_ends = UINT64_MAX;
  if (to != nullptr) {
    // The end of the part that the device has room for, in whole pages.
    uint64_t room = to->memory.left();
    range->ForPages(offset, bytes, [&](const ManagedPages& pages, uint64_t from, uint64_t length) {
      if (pages.device == to || room_ends != UINT64_MAX) return;
      const uint64_t charged = Charged(*range, from, length);
      // The last page of the range needs room for all that is behind it.
      const uint64_t last = (range->block->size - 1) & ~(kPage - 1);
      if (charged > room) room_ends = std::min(from + (room & ~(kPage - 1)), last);
      room -= std::min(room, charged);
    });
  }
  uint64_t end = std::min(offset + bytes, range->block->size);
  end = std::min(end, room_ends);
  if (end <= offset) return 0;
  range->ForPages(offset, end - offset, [&](ManagedPages& pages, uint64_t from, uint64_t length) {
    if (pages.device == to) return;
    const uint64_t charged = Charged(*range, from, length);
    // Another process may have taken the room meanwhile.
    if (to != nullptr && !to->memory.Charge(charged)) return;
    if (pages.device != nullptr) pages.device->memory.Return(charged);
    pages.device = to;
    moved += Inside(*range, from, length);
  });
  return moved;
}

}  // namespace gpushare::sim
