// SPDX-License-Identifier: Apache-2.0
// Device memory with real bytes, and the host memory that the driver knows.
//
// A device address points into a range that is reserved and never accessible, so that a program that touches device memory from
// the host faults as it would on silicon. The bytes lie in a second range with the same layout, of which the kernel backs only
// pages that were written.
#ifndef GPUSHARE_SIM_MEMORY_MEMORY_H_
#define GPUSHARE_SIM_MEMORY_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "sim/memory/shared_pages.h"

namespace gpushare::sim {

class MemoryPool;
class SharedDevice;
struct GraphAllocation;
struct Context;

struct Block {
  uint64_t address;
  uint64_t span;     // bytes of address space
  uint64_t size;     // bytes that the caller asked for
  uint64_t charged;  // bytes charged to the capacity
  uint64_t id;       // CU_POINTER_ATTRIBUTE_BUFFER_ID
  Context* context;
  Block* next_free;
  bool live;
  bool touched;      // written since it was allocated
  bool sync_memops;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  bool hidden;       // of an array: programs may not use its address
  bool in_page;      // a part of a page that others share
  // Stream-ordered memory: its pool. `backs_pool`: the block is not an allocation but memory that the pool took from the
  // device, and that contains allocations.
  MemoryPool* pool;
  bool backs_pool;
  GraphAllocation* graph;  // memory of a graph; charged through what backs it
  bool freeing;            // a stream has a command to free it and has not reached that
};

class DeviceMemory {
 public:
  static constexpr uint64_t kAlignment = 512;
  // Whether the host may access the memory at the device's addresses.
  enum class Visible : uint8_t { kToDevice, kToHost };

  // `page`: the device hands out memory in such pages; 0: to the byte.
  explicit DeviceMemory(uint64_t capacity, uint64_t page = 0, uint64_t alignment = kAlignment,
                        Visible visible = Visible::kToDevice)
      : capacity_(capacity), alignment_(alignment), visible_(visible), page_(page), pages_(page) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // What an allocation takes of the device: whole pages, or, if it is at most half of one, a part of a page that others share.
  uint64_t TakenBy(uint64_t bytes) const {
    if (page_ == 0 || bytes > capacity_) return bytes;
    const uint64_t unit = SharesPage(bytes) ? kAlignment : page_;
    return (bytes + unit - 1) & ~(unit - 1);
  }
  // Null when less than that is left.
  Block* Allocate(uint64_t bytes, Context* context);
  // The same for what is in units of its own, as the memory of pools: it takes no more than `bytes`.
  Block* AllocateExactly(uint64_t bytes, Context* context);
  // Allocates addresses without charging capacity: other code charges for what backs them.
  Block* AllocateAddresses(uint64_t bytes);
  // False unless `address` came from Allocate() and is live.
  bool Free(uint64_t address);
  void FreeAllOf(const Context* context);
  // Sets the block to 0: its pages may still hold what earlier blocks wrote.
  void Clear(const Block& block);
  // Cuts a live block in two: it keeps `span` bytes, and the rest becomes a live block of its own.
  Block* Split(Block* block, uint64_t span);
  // The live block that starts at `address`, else null. Never a block of a pool, a graph or an array, nor one that is being
  // freed.
  Block* FindStart(uint64_t address) {
    const auto found = by_address_.find(address);
    if (found == by_address_.end()) return nullptr;
    Block* const block = found->second;
    const bool plain = !block->backs_pool && !block->hidden && block->graph == nullptr;
    return block->live && plain && !block->freeing ? block : nullptr;
  }
  // The live block that contains `address`, else null; for memory of a pool, the allocation.
  Block* Find(uint64_t address);
  // The same, but for memory of a pool the block that backs it: work submitted before a free may use the memory until the pool
  // returns it.
  Block* FindBacking(uint64_t address);
  // The location of the bytes at a live block's address.
  uint8_t* Bytes(uint64_t address) const { return bytes_ + (address - base_); }
  bool InRange(uint64_t address) const { return address - base_ < reserved_ && base_ != 0; }

  // Charges capacity for memory whose addresses and bytes other code manages. False when less is left.
  bool Charge(uint64_t bytes) {
    if (bytes > capacity_ || used_ > capacity_ - bytes) return false;
    if (shared_ != nullptr && !HoldShared(used_ + bytes)) [[unlikely]]
      return false;
    used_ += bytes;
    return true;
  }
  void Return(uint64_t bytes) {
    used_ -= bytes;
    if (shared_ != nullptr) [[unlikely]]
      HoldLess();
  }
  // Park() moves all bytes to the host, so that others can use the room; Unpark() brings them back, and fails if they do not
  // fit.
  void Park() {
    parked_ = used_;
    Return(used_);
  }
  bool Unpark() {
    if (!Charge(parked_)) return false;
    parked_ = 0;
    return true;
  }
  uint64_t parked() const { return parked_; }
  void ForgetPark() { used_ += std::exchange(parked_, 0); }  // for gpushare_sim_reset()
  // From here on other processes hold some of the capacity too; null: none does.
  void Share(SharedDevice* shared, uint32_t gpu) {
    shared_ = shared;
    gpu_ = gpu;
  }
  // CU_POINTER_ATTRIBUTE_BUFFER_ID is unique per device.
  uint64_t NextId() { return ++ids_; }

  uint64_t capacity() const { return capacity_; }
  uint64_t page() const { return page_; }
  uint64_t unused_of_pages() const { return pages_.unused(); }  // of those that allocations share
  uint64_t used() const { return used_; }                       // by this process
  uint64_t left() const;

 private:
  bool HoldShared(uint64_t bytes);
  void HoldLess();
  bool Reserve();
  bool SharesPage(uint64_t bytes) const { return page_ != 0 && bytes <= page_ / 2; }
  Block* AllocateInPage(uint64_t bytes, Context* context);
  void FreeInPage(const Block& block);
  uint64_t CarveAddresses(uint64_t span);
  uint64_t CarveOrCoalesce(uint64_t span);
  Block* NewBlock(uint64_t address, uint64_t span);
  void Begin(Block* block, uint64_t bytes);
  void Coalesce();

  const uint64_t capacity_, alignment_;
  const Visible visible_;
  const uint64_t page_;
  uint64_t used_ = 0, parked_ = 0, reserved_ = 0, base_ = 0, bump_ = 0, ids_ = 0;
  uint8_t* bytes_ = nullptr;
  SharedDevice* shared_ = nullptr;
  uint32_t gpu_ = 0;  // its number in shared_
  // A freed block keeps its address and waits in the bin for its span, so that allocating and freeing cost one look-up each.
  // Free neighbours are joined only when the range is used up.
  std::map<uint64_t, std::unique_ptr<Block>> blocks_;
  std::unordered_map<uint64_t, Block*> by_address_;
  std::unordered_map<uint64_t, Block*> bins_;
  std::map<uint64_t, uint64_t> ranges_;  // joined free ranges: address -> bytes
  SharedPages pages_;
};

// Page-locked host memory: allocated by the driver or registered with it.
struct HostRange {
  uint64_t address, size;
  unsigned flags;
  bool owned;  // allocated by the driver
  Context* context;
};

class HostMemory {
 public:
  // Null when the machine has no more.
  void* Allocate(uint64_t bytes, unsigned flags, Context* context);
  bool Free(void* pointer);
  // False when the range overlaps a known one.
  bool Register(void* pointer, uint64_t bytes, unsigned flags, Context* context);
  bool Unregister(void* pointer);
  const HostRange* Find(uint64_t address) const;
  void FreeAllOf(const Context* context);

 private:
  std::map<uint64_t, HostRange> ranges_;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_MEMORY_H_
