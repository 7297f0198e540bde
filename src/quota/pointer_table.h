// SPDX-License-Identifier: Apache-2.0
// Maps pointers to allocations and the accounts that pay for them.
//
//   table.Insert(pointer, {.bytes = n, .account = account, .kind = Kind::kDirect});
//   Allocation allocation;
//   if (!table.Take(pointer, &allocation)) return driver.MemFree(pointer);   // unknown here: forwarded
//   Result result = driver.MemFree(pointer);
//   if (result == kSuccess) allocation.account->Release(allocation.bytes);   // whoever frees it
//   else table.Insert(pointer, allocation);    // if the driver still knows it: see below
//
// A free must call Take, the driver and Release, in this order:
//   * Take before the driver: as soon as the driver has freed the address, another thread may get it and insert it. Taking
//     afterwards would remove that new allocation.
//   * Release after the driver: a byte is charged as long as the device may hold it.
//   * If two threads free the same pointer, one takes it. The other's call goes to the driver as for any unknown pointer, and
//     may get there first. Then the driver refuses the thread that took it. So a refused thread must ask the driver whether the
//     allocation exists before putting it back.
// For the same reason, if Insert finds its pointer present, the old allocation has ended unnoticed (for example with its
// context). It is replaced and returned, so that its account can be credited.
//
// Cost: independent of the number of live allocations; most calls touch one cache line of the table.
// Threading: thread-safe. There are 64 shards, each an open-addressed array with its own spin lock. The lock is held while
// probing a few lines and, when the shard doubles, while moving its entries. It is never held across an allocation or any other
// call.
// Memory: 32 bytes a slot, with at most half of the slots in use. The table never shrinks.
#ifndef GPUSHARE_QUOTA_POINTER_TABLE_H_
#define GPUSHARE_QUOTA_POINTER_TABLE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "quota/ledger.h"
#include "quota/spin_lock.h"

namespace gpushare::quota {

// The family of calls that allocated the memory, and so must free it.
enum class Kind : uint8_t {
  kDirect,
  kPitched,
  kManaged,
  kArray,
  kMipmappedArray,
  kPool,
  kHandle,
  kMapping,
  kIpc,
  kExternal,
};

struct Allocation {
  uint64_t bytes = 0;
  Account* account = nullptr;  // charged now, and credited by the free
  Kind kind = Kind::kDirect;
  uint32_t device = 0;  // ordinal
  uint8_t place = 0;    // for the caller: the tag of a context, or the number of a pool
};

class PointerTable {
 public:
  enum class [[nodiscard]] InsertResult{
      kInserted,
      kReplaced,  // `replaced` was at this pointer
      kNoMemory,  // out of host memory; nothing changed
  };

  PointerTable() = default;
  ~PointerTable();
  PointerTable(const PointerTable&) = delete;
  PointerTable& operator=(const PointerTable&) = delete;

  // Prefetches the memory that Insert(pointer) uses, for callers that have other things to do first.
  void Prefetch(uint64_t pointer) const;

  // `pointer` is any address or handle but 0.
  InsertResult Insert(uint64_t pointer, const Allocation& allocation,
                      Allocation* replaced = nullptr);
  // Removes the allocation that starts at `pointer`; false if there is none.
  [[nodiscard]] bool Take(uint64_t pointer, Allocation* allocation);
  [[nodiscard]] bool Find(uint64_t pointer, Allocation* allocation) const;

  // Removes and returns all entries that are charged to `account`, when a tenant leaves.
  std::vector<std::pair<uint64_t, Allocation>> TakeAllOf(const Account* account);
  // The same for the entries that `wanted` accepts. It is called under a lock and must not call the table.
  std::vector<std::pair<uint64_t, Allocation>> TakeWhere(
      absl::FunctionRef<bool(const Allocation&)> wanted);
  // The same without using host memory: calls `taken` for each entry after its removal, without a lock.
  void TakeWhere(absl::FunctionRef<bool(const Allocation&)> wanted,
                 absl::FunctionRef<void(uint64_t pointer, const Allocation&)> taken);
  // Visits every entry, shard by shard, under the shard's lock. Not for hot paths.
  void ForEach(absl::FunctionRef<void(uint64_t pointer, const Allocation&)> visit) const;

  size_t size() const;
  // The bytes charged to `account`, summed over the table. Not for hot paths.
  uint64_t BytesOf(const Account* account) const;

  // How many lines an entry lies past the one where it belongs, at most. Not for hot paths.
  size_t LongestWay() const;
  // Internal if an entry cannot be found by its pointer, exists twice, or is miscounted.
  absl::Status CheckInvariants() const;

 private:
  // A cache line with two slots.
  struct alignas(64) Line {
    static constexpr uint32_t kSlots = 2;

    uint64_t pointers[kSlots] = {};  // 0: free
    uint64_t bytes[kSlots] = {};
    Account* accounts[kSlots] = {};
    uint32_t devices[kSlots] = {};
    Kind kinds[kSlots] = {};
    uint8_t places[kSlots] = {};
    // The number of entries that belong here or earlier but lie further on because this line was full. A probe goes on only
    // past a line where this is not 0, so that a removal leaves no tombstone and moves nothing.
    uint32_t passed = 0;

    bool Holds(uint64_t pointer) const { return pointers[0] == pointer || pointers[1] == pointer; }
    // The slot of `pointer`, if it is in this line; of 0: a free slot, if there is one.
    uint32_t SlotOf(uint64_t pointer) const { return pointers[0] == pointer ? 0 : 1; }
    Allocation Get(uint32_t slot) const {
      return {bytes[slot], accounts[slot], kinds[slot], devices[slot], places[slot]};
    }
    void Set(uint32_t slot, uint64_t pointer, const Allocation& allocation) {
      pointers[slot] = pointer;
      bytes[slot] = allocation.bytes;
      accounts[slot] = allocation.account;
      kinds[slot] = allocation.kind;
      devices[slot] = allocation.device;
      places[slot] = allocation.place;
    }
  };
  static_assert(sizeof(Line) == 64);

  static constexpr int kLineBit = 32;  // the lowest bit of a hash that selects the line
  static constexpr size_t kBlockLines = 16;

  struct Place {
    Line* line;  // null if not found
    uint32_t slot;
  };

  struct alignas(64) Shard {
    mutable SpinLock lock;
    uint32_t count = 0;
    uint32_t limit = 0;  // it grows before it holds more entries than this; 0: it has no lines yet
    // Written under the lock. Prefetch() reads these without it, and may fetch the wrong line.
    std::atomic<uint64_t> mask{0};  // the number of lines - 1
    std::atomic<Line*> lines{&none_};

    Line* first() const { return lines.load(std::memory_order_relaxed); }
    size_t size() const { return mask.load(std::memory_order_relaxed) + 1; }
    // The line where an entry with this hash belongs.
    Line* Home(uint64_t hash) const {
      return first() + ((hash >> kLineBit) & mask.load(std::memory_order_relaxed));
    }
    // Where an entry goes if `line` is full: into the next block, since a full line often has full neighbours. The step is odd,
    // so that it comes to every line.
    Line* After(Line* line) const {
      const auto next = static_cast<uint64_t>(line - first()) + kBlockLines + 1;
      return first() + (next & mask.load(std::memory_order_relaxed));
    }
    Place Look(uint64_t pointer, uint64_t hash) const;
    // The place for a new entry in the first two lines of its way, which are then counted as passed. None if the array has to
    // grow, if there may be an entry with this pointer, or if neither line has a free slot.
    Place MakePlaceNear(uint64_t pointer, uint64_t hash);
    // Requires a free slot, and that the pointer is not in the table.
    void Add(uint64_t pointer, uint64_t hash, const Allocation& allocation);
    void Remove(Place place, uint64_t hash);
  };
  static constexpr int kShardBits = 6;
  static constexpr size_t kFirstLines = 8;

  static uint64_t Hash(uint64_t pointer);
  Shard& ShardOf(uint64_t hash) { return shards_[hash >> (64 - kShardBits)]; }
  const Shard& ShardOf(uint64_t hash) const { return shards_[hash >> (64 - kShardBits)]; }
  static bool Grow(Shard& shard, size_t lines);
  InsertResult InsertSlow(uint64_t pointer, const Allocation& allocation, Allocation* replaced,
                          bool locked);
  bool TakeSlow(uint64_t pointer, Allocation* allocation, bool locked);

  static Line none_;  // for shards without lines; never written
  std::array<Shard, size_t{1} << kShardBits> shards_;
};

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_POINTER_TABLE_H_
