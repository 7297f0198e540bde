// SPDX-License-Identifier: Apache-2.0
// Which allocation lies at a pointer, and whose it is.
//
//   table.Insert(pointer, {.bytes = n, .account = account, .kind = Kind::kDirect});
//   Allocation allocation;
//   if (!table.Take(pointer, &allocation)) return driver.MemFree(pointer);   // not ours: forwarded
//   Result result = driver.MemFree(pointer);
//   if (result == kSuccess) allocation.account->Release(allocation.bytes);   // whoever frees
//   else table.Insert(pointer, allocation);                                  // it is still there
//
// The order of a free is Take, driver, Release, and no other is right:
//   * Take before the driver: as soon as the driver has freed the address, another thread may be given
//     it and insert it. Taking afterwards would find that new allocation and drop it.
//   * Release after the driver: a byte is charged for as long as the device may hold it.
//   * Of two threads that free the same pointer one takes it; the other's call goes to the driver as
//     that of any unknown pointer, and the driver says what it thinks of it.
// For the same reason an Insert that finds its pointer present means that the old allocation ended
// unseen (a context was destroyed, say): it is replaced and handed back, for its account to be released.
//
// Cost: flat in the number of live allocations. Threading: thread-safe; 64 shards, each an open-addressed
// array under a spin lock of its own. The lock is held for a probe of some slots and, when the shard
// doubles, for moving its entries; it is never held across an allocation or any other call.
// Memory: 32 bytes a slot, at most 3/4 of the slots in use; what it grew to it keeps.
#ifndef GPUSHARE_QUOTA_POINTER_TABLE_H_
#define GPUSHARE_QUOTA_POINTER_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "quota/ledger.h"
#include "quota/spin_lock.h"

namespace gpushare::quota {

// By which family of calls the memory was taken, and so by which it is given back.
enum class Kind : uint32_t {
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

  // `pointer` is any address or handle but 0.
  InsertResult Insert(uint64_t pointer, const Allocation& allocation,
                      Allocation* replaced = nullptr);
  // Removes the allocation that starts at `pointer`; false when there is none.
  [[nodiscard]] bool Take(uint64_t pointer, Allocation* allocation);
  [[nodiscard]] bool Find(uint64_t pointer, Allocation* allocation) const;

  // Removes and returns what is charged to `account`: for a tenant that goes.
  std::vector<std::pair<uint64_t, Allocation>> TakeAllOf(const Account* account);

  size_t size() const;
  // Bytes charged to `account`, summed over the table. Not for hot paths.
  uint64_t BytesOf(const Account* account) const;

  // Internal when an entry cannot be found from its pointer, is there twice, or is miscounted.
  absl::Status CheckInvariants() const;

  // Around fork(), in the thread that forks: no lock is held by another thread when the child starts.
  void PrepareFork();
  void AfterFork();

 private:
  struct alignas(32) Slot {
    uint64_t pointer = 0;  // 0: free
    Allocation allocation;
  };
  struct alignas(64) Shard {
    mutable SpinLock lock;
    uint32_t bits = 0;  // of the capacity, once there are slots
    size_t count = 0;
    Slot* slots = nullptr;

    size_t capacity() const { return slots == nullptr ? 0 : size_t{1} << bits; }
    // The slot of `pointer`, or the free one where it belongs. Needs slots.
    Slot* Probe(uint64_t pointer, uint64_t hash) const;
    void Remove(Slot* slot);
  };
  static constexpr int kShardBits = 6;
  static constexpr uint32_t kFirstBits = 4;

  static uint64_t Hash(uint64_t pointer);
  static size_t Home(uint64_t hash, uint32_t bits);
  Shard& ShardOf(uint64_t hash) { return shards_[hash >> (64 - kShardBits)]; }
  const Shard& ShardOf(uint64_t hash) const { return shards_[hash >> (64 - kShardBits)]; }
  static bool Grow(Shard& shard, uint32_t bits);

  std::array<Shard, size_t{1} << kShardBits> shards_;
};

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_POINTER_TABLE_H_
