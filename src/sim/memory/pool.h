// SPDX-License-Identifier: Apache-2.0
// Pools of stream-ordered memory. A pool takes memory from the device in granules, hands out parts of them at once, and takes a
// part back when the freeing stream reaches the free.
#ifndef GPUSHARE_SIM_MEMORY_POOL_H_
#define GPUSHARE_SIM_MEMORY_POOL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/memory/memory.h"
#include "sim/memory/range_map.h"

namespace gpushare::sim {

class Device;
struct Command;
struct Stream;
class StreamOrder;

class MemoryPool {
 public:
  // `most`: the bytes that it may reserve; 0: as many as the device has.
  MemoryPool(Device* device, uint64_t granule, uint64_t most);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Null when neither reuse, growth nor trimming provides the bytes. `waits` gets the frees of other streams that the stream
  // must wait for before it may use the block.
  Block* Allocate(uint64_t bytes, const Stream* stream, std::vector<Command*>* waits);
  // Frees the block when the stream has done its present work. The block no longer exists after the call.
  void FreeInOrder(Block* block, Stream* stream);
  // Frees the block now: the program promises that nobody uses it.
  void FreeNow(Block* block);
  // Returns unused granules to the device as long as `keep` bytes stay reserved.
  void Trim(uint64_t keep);
  // The host has waited for all work of the stream (0: of every stream).
  void Observe(uint64_t stream_id);

  // The live block that contains the address, else null.
  Block* Find(uint64_t address);
  bool empty() const { return live_.empty() && frees_.empty(); }

  struct Bytes {
    uint64_t now = 0, high = 0;
    void Add(uint64_t bytes) {
      now += bytes;
      if (now > high) high = now;
    }
  };

  uint64_t handle = 0;  // 0: destroyed; freed with its last allocation
  Device* const device;
  bool is_default = false;
  // Which streams, besides the freeing one, may reuse freed memory: those that already wait for the free, those that reach it
  // after its end, and those that can be made to wait.
  bool follow_events = true, opportunistic = true, internal_dependencies = true;
  uint64_t release_threshold = 0;
  Bytes reserved, used;
  uint64_t peers = 0;  // one bit per device that may access it, besides its own

  // A free that its stream has not reached.
  struct Pending {
    MemoryPool* pool;
    Command* command;  // completes when the stream reaches the free
    uint64_t stream_id, begin, end;
  };
  // The command of the free has completed, or was dropped with its stream. May delete the pool.
  static void FinishFree(Pending* pending);

 private:
  // A range that no live block holds.
  struct Vacant {
    uint64_t bytes;
    const Pending* pending;  // null: the free has completed
    uint64_t stream_id;      // the freeing stream; 0: any stream may reuse the range
  };
  enum class Reach : uint8_t { kOrdered, kWithDependencies };
  using Vacants = std::map<uint64_t, Vacant>;

  Block* Take(uint64_t bytes, const Stream* stream, Reach reach, std::vector<Command*>* waits);
  bool MayReuse(const Vacant& vacant, const Stream* stream, Reach reach, StreamOrder* order) const;
  Block* Place(uint64_t address, uint64_t bytes, const Stream* stream, StreamOrder* order,
               std::vector<Command*>* waits);
  bool Grow(uint64_t bytes);
  void Release(uint64_t from, uint64_t to);
  // Joins the range with vacant neighbours that any stream may reuse.
  void Join(Vacants::iterator at);
  void JoinAll(const std::vector<uint64_t>& addresses);  // the addresses must be in order
  Block* SegmentOf(uint64_t address) { return LastAtOrBefore(segments_, address)->second; }

  const uint64_t granule_, most_;
  std::map<uint64_t, Block*> segments_;  // memory taken from the device, by address
  std::map<uint64_t, Block> live_;
  Vacants vacant_;
  std::vector<std::unique_ptr<Pending>> frees_;
};

// The device's default pool. Created by the first call that needs it.
MemoryPool* DefaultPool(Device* device);
MemoryPool* CurrentPool(Device* device);
MemoryPool* NewPool(Device* device, uint64_t most);
// Invalidates the handle. The pool is freed when nothing in it is allocated any more.
void DestroyPool(MemoryPool* pool);
// Removes all pools of the device with everything allocated from them; the default pool starts afresh.
void ResetPools(Device* device);

// Returns what pools hold without using it, to make room for other memory.
void TrimPools(Device* device);
// A stream (0: every stream of the device) was waited for: pools above their release threshold shrink.
void PoolsSynchronized(Device* device, uint64_t stream_id);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_POOL_H_
