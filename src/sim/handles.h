// SPDX-License-Identifier: Apache-2.0
// Handles that can be checked. A handle is not an address but a type tag, a generation and an index, so that a null, destroyed,
// foreign or invented handle is recognised without touching memory that is not ours, and no two objects ever have the same
// handle. The exception is primary contexts: programs expect their handle never to change.
#ifndef GPUSHARE_SIM_HANDLES_H_
#define GPUSHARE_SIM_HANDLES_H_

#include <cstdint>
#include <vector>

namespace gpushare::sim {

enum class HandleTag : uint64_t {
  kContext = 0x11,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kGraph,
  kGraphNode,
  kGraphExec,
  kLibrary,
  kKernel,
  kAllocation,
  kArray,
  kMipmappedArray,
  kExternalMemory,
  kMemoryPool,
  kUserObject,
  kGreenContext,
  kGreenAsContext,
  kResourceDescriptor,
  kTexture,
};

template <typename T, HandleTag kTag>
class HandleTable {
 public:
  // bits 63-56: tag, 55-32: generation, 31-3: index, 2-0: zero.
  uint64_t Add(T* object) {
    uint32_t index;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      index = static_cast<uint32_t>(slots_.size());
      slots_.push_back({nullptr, Handle(1, index)});
    }
    slots_[index].object = object;
    return slots_[index].handle;
  }

  T* Find(uint64_t handle) const {
    const uint64_t index = (handle & 0xffffffff) >> 3;
    if (index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[index];
    return handle == slot.handle ? slot.object : nullptr;
  }
  template <typename Handle>
  T* Find(Handle* handle) const {
    return Find(reinterpret_cast<uint64_t>(handle));
  }

  void Remove(uint64_t handle) {
    const auto index = static_cast<uint32_t>((handle & 0xffffffff) >> 3);
    slots_[index].object = nullptr;
    slots_[index].handle = Handle(static_cast<uint32_t>(handle >> 32) + 1, index);
    free_.push_back(index);
  }

  // For an object that successors replace under the same handle. Vacate() removes the object but reserves the handle; Fill()
  // assigns it to the successor.
  void Vacate(uint64_t handle) { slots_[(handle & 0xffffffff) >> 3].object = nullptr; }
  void Fill(uint64_t handle, T* object) { slots_[(handle & 0xffffffff) >> 3].object = object; }

  // Live objects, in the order of their slots.
  std::vector<T*> All() const {
    std::vector<T*> all;
    for (const Slot& slot : slots_) {
      if (slot.object != nullptr) all.push_back(slot.object);
    }
    return all;
  }

 private:
  struct Slot {
    T* object;
    uint64_t handle;  // of the object, or of the next one if the slot is free
  };
  static uint64_t Handle(uint32_t generation, uint32_t index) {
    return (static_cast<uint64_t>(kTag) << 56) | (uint64_t{generation & 0xffffff} << 32) |
           (uint64_t{index} << 3);
  }
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_HANDLES_H_
