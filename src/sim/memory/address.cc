// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/address.h"

#include <algorithm>

#include "sim/state.h"

namespace gpushare::sim {
namespace {

bool InDeviceRange(uint64_t address) {
  for (const auto& device : state().devices) {
    if (device->memory.InRange(address)) return true;
  }
  return false;
}

bool IsReserved(uint64_t address) {
  const VirtualMemory& memory = state().virtual_memory;
  return !memory.empty() && memory.FindReservation(address) != nullptr;
}

}  // namespace

Known Lookup(uint64_t address) {
  State& s = state();
  Known known;
  known.block = FindBlock(address, &known.device);
  if (known.block != nullptr) {
    if (known.block->hidden) return {};
    return known;
  }
  known.managed = s.managed.Find(address);
  if (known.managed != nullptr) {
    known.block = known.managed->block;
    known.device = known.managed->device;
    return known;
  }
  if (!s.virtual_memory.empty()) {
    known.reservation = s.virtual_memory.FindReservation(address);
    if (known.reservation != nullptr) {
      known.mapping = s.virtual_memory.FindMapping(address);
      if (known.mapping != nullptr) known.device = known.mapping->allocation->device;
      return known;
    }
  }
  known.host = s.host.Find(address);
  return known;
}

Block* FindBlock(uint64_t address, Device** device) {
  for (const auto& one : state().devices) {
    Block* const block = one->memory.Find(address);
    if (block == nullptr) continue;
    *device = one.get();
    return block;
  }
  return nullptr;
}

bool IsDeviceAddress(uint64_t address) {
  return InDeviceRange(address) || IsReserved(address) || state().managed.InRange(address);
}

bool LiesOnDevice(uint64_t address) {
  if (InDeviceRange(address) || IsReserved(address)) return true;
  const ManagedRange* const range = state().managed.Find(address);
  return range != nullptr && range->At(address - range->block->address).device != nullptr;
}

bool IsPageable(uint64_t address) {
  return state().host.Find(address) == nullptr && !state().managed.InRange(address);
}

bool IsUsableRange(uint64_t address, uint64_t span) {
  if (InDeviceRange(address)) {
    Device* device;
    const Block* const block = FindBlock(address, &device);
    return block != nullptr && !block->hidden && span <= block->size - (address - block->address);
  }
  if (state().managed.InRange(address)) {
    const ManagedRange* const range = state().managed.Find(address);
    return range != nullptr && span <= range->block->size - (address - range->block->address);
  }
  return !IsReserved(address) || state().virtual_memory.IsMapped(address, span);
}

bool SyncsMemops(uint64_t address) {
  const Known known = Lookup(address);
  return (known.block != nullptr && known.block->sync_memops) ||
         (known.mapping != nullptr && known.mapping->sync_memops);
}

Piece FindPiece(uint64_t address, uint64_t bytes, int ordinal, Access access) {
  constexpr Piece kGone{Piece::Kind::kGone, nullptr, 0};
  constexpr Piece kNoAccess{Piece::Kind::kNoAccess, nullptr, 0};
  State& s = state();
  for (const auto& device : s.devices) {
    if (!device->memory.InRange(address)) continue;
    Block* const block = device->memory.FindBacking(address);
    if (block == nullptr || address - block->address + bytes > block->size) return kGone;
    block->touched = true;
    return {Piece::Kind::kBytes, device->memory.Bytes(address), bytes};
  }
  if (s.managed.InRange(address)) {
    const ManagedRange* const range = s.managed.Find(address);
    if (range == nullptr || address - range->block->address + bytes > range->block->size) {
      return kGone;
    }
    return {Piece::Kind::kBytes, s.managed.Bytes(address), bytes};
  }
  if (IsReserved(address)) {
    const Mapping* const mapping = s.virtual_memory.FindMapping(address);
    if (mapping == nullptr) return kNoAccess;
    const uint64_t devices = access == Access::kRead ? mapping->readable : mapping->writable;
    if ((devices >> ordinal & 1) == 0) return kNoAccess;
    const uint64_t at = address - mapping->address;
    if (const MulticastTeam* const team = mapping->allocation->team.get()) {
      // Multicast memory can only be written: a read has no single source. Parts that are not bound on every device have no
      // bytes yet.
      uint64_t length = std::min(bytes, mapping->size - at);
      if (access == Access::kRead) return kNoAccess;
      uint8_t* first = nullptr;
      for (size_t i = team->devices.size(); i-- > 0;) {
        first = team->Find(i, mapping->offset + at, &length);
        if (first == nullptr) return kNoAccess;
      }
      return {Piece::Kind::kBytes, first, length, static_cast<uint32_t>(team->devices.size())};
    }
    return {Piece::Kind::kBytes, mapping->allocation->storage.bytes() + mapping->offset + at,
            std::min(bytes, mapping->size - at)};
  }
  return {Piece::Kind::kBytes, reinterpret_cast<uint8_t*>(address), bytes};
}

uint8_t* FindReplica(uint64_t address, uint32_t nth) {
  const Mapping* const mapping = state().virtual_memory.FindMapping(address);
  uint64_t length = UINT64_MAX;
  return mapping->allocation->team->Find(nth, mapping->offset + (address - mapping->address),
                                         &length);
}

}  // namespace gpushare::sim
