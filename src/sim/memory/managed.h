// SPDX-License-Identifier: Apache-2.0
// Managed memory: one address for host and device, backed by real memory of the process.
//
// The model is simple. A page stays where it was last put: at first on the device that allocated it, later where it was
// prefetched to. Accesses move nothing, nothing is evicted, and a device is charged for the pages on it.
#ifndef GPUSHARE_SIM_MEMORY_MANAGED_H_
#define GPUSHARE_SIM_MEMORY_MANAGED_H_

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>

#include "sim/memory/memory.h"
#include "sim/memory/range_map.h"

namespace gpushare::sim {

class Device;
struct Context;

// A CUmemLocation: a place where managed memory is, or is meant to be.
struct ManagedPlace {
  int type = 0;  // CUmemLocationType; 0: none
  int id = 0;
  bool operator==(const ManagedPlace&) const = default;
};

struct ManagedPages {
  Device* device = nullptr;  // the device that they are on; null: the host
  bool read_mostly = false;
  uint64_t accessed_by = 0;  // one bit per device
  bool accessed_by_host = false;
  bool discarded = false;  // since the last prefetch: the bytes need not move
  ManagedPlace preferred, prefetched;
  bool operator==(const ManagedPages&) const = default;
};

struct ManagedRange {
  Block* block = nullptr;
  uint64_t taken = 0;        // what it takes of the device that it is on
  Device* device = nullptr;  // the device that it was allocated on
  // Runs of pages in the same state, by the offset of their first byte.
  std::map<uint64_t, ManagedPages> pages;

  // Calls `f` for every run in [offset, offset + bytes), which is rounded to pages; `f` may change the run.
  template <typename F>
  void ForPages(uint64_t offset, uint64_t bytes, F&& f);
  const ManagedPages& At(uint64_t offset) const { return LastAtOrBefore(pages, offset)->second; }
};

class ManagedMemory {
 public:
  static constexpr uint64_t kPage = 4096;

  // Null when the device has no room.
  ManagedRange* Allocate(Device* device, uint64_t bytes, Context* context);
  // False unless `address` came from Allocate() and is live.
  bool Free(uint64_t address);
  void FreeAllOf(const Context* context);
  void Clear();

  // The live range that contains the address, else null.
  ManagedRange* Find(uint64_t address);
  // The live range that contains all of [address, address + bytes), which must not be empty, else null.
  ManagedRange* Find(uint64_t address, uint64_t bytes);
  // Whether it is an address of managed memory, live or not.
  bool InRange(uint64_t address) const { return arena_ != nullptr && arena_->InRange(address); }
  uint8_t* Bytes(uint64_t address) const { return arena_->Bytes(address); }

  // How much of the range is not at `to` yet. Discarded pages do not count.
  static uint64_t Missing(ManagedRange* range, uint64_t offset, uint64_t bytes, const Device* to);
  // Moves the range (null: to the host) as far as the device has room. Returns the bytes moved.
  static uint64_t Migrate(ManagedRange* range, uint64_t offset, uint64_t bytes, Device* to);

 private:
  void Forget(const ManagedRange& range);

  // Its memory stays mapped after a free: work that was submitted before then finds that it is gone.
  std::unique_ptr<DeviceMemory> arena_;
  std::map<uint64_t, ManagedRange> ranges_;
};

template <typename F>
void ManagedRange::ForPages(uint64_t offset, uint64_t bytes, F&& f) {
  constexpr uint64_t kMask = ManagedMemory::kPage - 1;
  const uint64_t begin = offset & ~kMask;
  const uint64_t end = (offset + bytes + kMask) & ~kMask;
  const uint64_t last = (block->size + kMask) & ~kMask;
  // Cuts the runs at both ends; equal neighbours are joined afterwards.
  const auto cut = [&](uint64_t at) {
    if (at < last) pages.emplace(at, At(at));
  };
  cut(begin);
  cut(end);
  for (auto run = pages.find(begin); run != pages.end() && run->first < end; ++run) {
    const auto next = std::next(run);
    f(run->second, run->first, (next == pages.end() ? last : next->first) - run->first);
  }
  auto run = pages.find(begin);
  if (run != pages.begin()) --run;
  while (std::next(run) != pages.end() && run->first < end) {
    const auto next = std::next(run);
    if (run->second == next->second) {
      pages.erase(next);
    } else {
      run = next;
    }
  }
}

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_MANAGED_H_
