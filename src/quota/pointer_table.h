// SPDX-License-Identifier: Apache-2.0
// Which allocation lies at a pointer, and whose it is.
//
//   table.Insert(pointer, {.bytes = n, .account = account, .kind = Kind::kDirect});
//   Allocation allocation;
//   if (!table.Take(pointer, &allocation)) return driver.MemFree(pointer);   // not ours: forwarded
//   Result result = driver.MemFree(pointer);
//   if (result == kSuccess) allocation.account->Release(allocation.bytes);   // whoever frees
//   else table.Insert(pointer, allocation);    // if the driver still knows it: see below
//
// The order of a free is Take, driver, Release, and no other is right:
//   * Take before the driver: as soon as the driver has freed the address, another thread may be given
//     it and insert it. Taking afterwards would find that new allocation and drop it.
//   * Release after the driver: a byte is charged for as long as the device may hold it.
//   * Of two threads that free the same pointer one takes it; the other's call goes to the driver as
//     that of any unknown pointer, and may come there first. Then the driver refuses the one that took
//     it: whoever is refused asks the driver whether the allocation exists before putting it back.
// For the same reason an Insert that finds its pointer present means that the old allocation ended
// unseen (a context was destroyed, say): it is replaced and handed back, for its account to be released.
//
// Cost: flat in the number of live allocations; most calls touch one cache line of the table.
// Threading: thread-safe; 64 shards, each an open-addressed array under a spin lock of its own. The lock
// is held for a probe of some lines and, when the shard doubles, for moving its entries; it is never held
// across an allocation or any other call.
// Memory: 32 bytes a slot, at most half of the slots in use; what it grew to it keeps.
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

// By which family of calls the memory was taken, and so by which it is given back.
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
  Account* account = nullptr;  // charged, and credited by the free
  Kind kind = Kind::kDirect;
  uint32_t device = 0;  // ordinal
  uint8_t place = 0;    // the caller's own: in which context it is, or in which pool
};

class PointerTable {
 public:
  enum class [[nodiscard]] InsertResult{
      kInserted,
      kReplaced,  // `replaced` was at this pointer
      kNoMemory,  // of the host; nothing changed
  };

  PointerTable() = default;
  ~PointerTable();
  PointerTable(const PointerTable&) = delete;
  PointerTable& operator=(const PointerTable&) = delete;

  // Starts to fetch what Insert(pointer) touches, for callers that have other books to do first.
  void Prefetch(uint64_t pointer) const;

  // `pointer` is any address or handle but 0.
  InsertResult Insert(uint64_t pointer, const Allocation& allocation,
                      Allocation* replaced = nullptr);
  // Removes the allocation that starts at `pointer`; false when there is none.
  [[nodiscard]] bool Take(uint64_t pointer, Allocation* allocation);
  [[nodiscard]] bool Find(uint64_t pointer, Allocation* allocation) const;

  // Removes and returns what is charged to `account`: for a tenant that goes.
  std::vector<std::pair<uint64_t, Allocation>> TakeAllOf(const Account* account);
  // The same of what `wanted` says, which is asked under a lock and may not call the table.
  std::vector<std::pair<uint64_t, Allocation>> TakeWhere(
      absl::FunctionRef<bool(const Allocation&)> wanted);
  // The same without memory of the host: each is told once it is out, without a lock.
  void TakeWhere(absl::FunctionRef<bool(const Allocation&)> wanted,
                 absl::FunctionRef<void(uint64_t pointer, const Allocation&)> taken);
  // Every entry, shard by shard, under its lock. Not for hot paths.
  void ForEach(absl::FunctionRef<void(uint64_t pointer, const Allocation&)> visit) const;

  size_t size() const;
  // Bytes charged to `account`, summed over the table. Not for hot paths.
  uint64_t BytesOf(const Account* account) const;

  // Internal when an entry cannot be found from its pointer, is there twice, or is miscounted.
  absl::Status CheckInvariants() const;

 private:
  // A cache line of two slots.
  struct alignas(64) Line {
    static constexpr uint32_t kSlots = 2;

    uint64_t pointers[kSlots] = {};  // 0: free
    uint64_t bytes[kSlots] = {};
    Account* accounts[kSlots] = {};
    uint32_t devices[kSlots] = {};
    Kind kinds[kSlots] = {};
    uint8_t places[kSlots] = {};
    // Entries that belong here or before and lie behind, this line having been full. A probe goes on
    // only past a line that was passed, so that a removal leaves no mark and moves nothing.
    uint32_t passed = 0;

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

  static constexpr int kLineBit = 32;  // of a hash: the lowest of those that choose the line

  struct Place {
    Line* line;  // null: nowhere
    uint32_t slot;
  };

  struct alignas(64) Shard {
    mutable SpinLock lock;
    uint32_t count = 0;
    uint32_t limit = 0;  // with so many it grows before it takes another; 0: it has no lines yet
    // Written under the lock. Prefetch() reads them without it, and may fetch in vain.
    std::atomic<uint64_t> mask{0};  // number of lines - 1
    std::atomic<Line*> lines{&none_};

    Line* first() const { return lines.load(std::memory_order_relaxed); }
    size_t size() const { return mask.load(std::memory_order_relaxed) + 1; }
    // The line where an entry of this hash belongs.
    Line* Home(uint64_t hash) const {
      return first() + ((hash >> kLineBit) & mask.load(std::memory_order_relaxed));
    }
    Line* After(Line* line) const { return ++line == first() + size() ? first() : line; }
    Place Look(uint64_t pointer, uint64_t hash) const;
    // Needs a free slot, and that the pointer is not there.
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

  static Line none_;  // of the shards without lines: never written
  std::array<Shard, size_t{1} << kShardBits> shards_;
};

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_POINTER_TABLE_H_
