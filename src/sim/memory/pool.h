// SPDX-License-Identifier: Apache-2.0
// Pools of stream-ordered memory. A pool takes memory from the device in granules, hands out parts of it
// at once, and takes a part back when the stream of the free reaches it.
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
  // `most`: bytes that it may reserve; 0: what the device has.
  MemoryPool(Device* device, uint64_t granule, uint64_t most);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Null when neither reuse, growth nor trimming gives the bytes. `waits` gets the frees of other streams
  // that the stream has to wait for before the block is its own.
  Block* Allocate(uint64_t bytes, const Stream* stream, std::vector<Command*>* waits);
  // Free when the stream has done what it has now; the block is gone at once.
  void FreeInOrder(Block* block, Stream* stream);
  // Free now: the program says that nobody uses it.
  void FreeNow(Block* block);
  // Gives granules back that nothing lies in, as long as `keep` bytes stay reserved.
  void Trim(uint64_t keep);
  // The host has seen that the stream did everything that it had (0: that every stream did).
  void Observe(uint64_t stream_id);

  // The live block that holds the address, else null.
  Block* Find(uint64_t address);
  bool empty() const { return live_.empty() && frees_.empty(); }

  struct Bytes {
    uint64_t now = 0, high = 0;
    void Add(uint64_t bytes) {
      now += bytes;
      if (now > high) high = now;
    }
  };

  uint64_t handle = 0;  // 0: destroyed, goes with its last allocation
  Device* const device;
  bool is_default = false;
  // What a free may be reused for, besides its own stream: streams that already wait for it, those that
  // come after its end, those that can be made to wait.
  bool follow_events = true, opportunistic = true, internal_dependencies = true;
  uint64_t release_threshold = 0;
  Bytes reserved, used;
  uint64_t peers = 0;  // bit per device that may access it, besides its own

  // A free that a stream has not reached.
  struct Pending {
    MemoryPool* pool;
    Command* command;  // completes when the stream reaches it
    uint64_t stream_id, begin, end;
  };
  // The command of the free has completed, or was dropped with its stream. May delete the pool.
  static void FinishFree(Pending* pending);

 private:
  // A range that no live block holds.
  struct Vacant {
    uint64_t bytes;
    const Pending* pending;  // null: the free has completed
    uint64_t stream_id;      // whose free it was; 0: anybody may have it
  };
  enum class Reach : uint8_t { kOrdered, kWithDependencies };
  using Vacants = std::map<uint64_t, Vacant>;

  Block* Take(uint64_t bytes, const Stream* stream, Reach reach, std::vector<Command*>* waits);
  bool MayReuse(const Vacant& vacant, const Stream* stream, Reach reach, StreamOrder* order) const;
  Block* Place(uint64_t address, uint64_t bytes, const Stream* stream, StreamOrder* order,
               std::vector<Command*>* waits);
  bool Grow(uint64_t bytes);
  void Release(uint64_t from, uint64_t to);
  // Joins the range with the vacant neighbours that anybody may have.
  void Join(Vacants::iterator at);
  void JoinAll(const std::vector<uint64_t>& addresses);  // in their order
  Block* SegmentOf(uint64_t address) { return LastAtOrBefore(segments_, address)->second; }

  const uint64_t granule_, most_;
  std::map<uint64_t, Block*> segments_;  // of the device's memory, by address
  std::map<uint64_t, Block> live_;
  Vacants vacant_;
  std::vector<std::unique_ptr<Pending>> frees_;
};

// The device's default pool. Made by the first call that needs it.
MemoryPool* DefaultPool(Device* device);
MemoryPool* CurrentPool(Device* device);
MemoryPool* NewPool(Device* device, uint64_t most);
// The handle is invalid from now on; the pool goes when nothing of it is allocated any more.
void DestroyPool(MemoryPool* pool);
// All pools of the device with all that was allocated from them; the default pool is as new.
void ResetPools(Device* device);

// Gives back what pools hold without using it, so that other memory can be had.
void TrimPools(Device* device);
// A stream (0: every stream of the device) was waited for: pools over their release threshold shrink.
void PoolsSynchronized(Device* device, uint64_t stream_id);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_POOL_H_
