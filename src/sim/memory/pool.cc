// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/memory/range_map.h"
#include "sim/state.h"
#include "sim/stream/order.h"

namespace gpushare::sim {
namespace {

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

MemoryPool::MemoryPool(Device* on, uint64_t granule, uint64_t most)
    : device(on), granule_(granule), most_(most == 0 ? on->memory.capacity() : most) {}

MemoryPool::~MemoryPool() {
  for (const auto& pending : frees_) pending->command->memory.object = nullptr;
  for (const auto& [address, segment] : segments_) device->memory.Free(address);
}

Block* MemoryPool::Allocate(uint64_t bytes, const Stream* stream, std::vector<Command*>* waits) {
  if (bytes > device->memory.capacity()) return nullptr;
  Block* block = Take(bytes, stream, Reach::kOrdered, waits);
  if (block != nullptr) return block;
  // Unused granules that lie in ranges too small for the block are returned, and taken again as part of the growth.
  Trim(reserved.now - std::min(reserved.now, RoundUp(bytes, granule_)));
  if (!Grow(bytes)) {
    // Returns unused pieces in this pool, and what other pools do not use.
    Trim(0);
    if (!Grow(bytes)) {
      TrimPools(device);
      Grow(bytes);
    }
  }
  block = Take(bytes, stream, Reach::kOrdered, waits);
  if (block != nullptr || !internal_dependencies) return block;
  return Take(bytes, stream, Reach::kWithDependencies, waits);
}

bool MemoryPool::MayReuse(const Vacant& vacant, const Stream* stream, Reach reach,
                          StreamOrder* order) const {
  if (vacant.stream_id == 0 || vacant.stream_id == stream->id) return true;
  if (vacant.pending == nullptr) return opportunistic;
  if (reach == Reach::kWithDependencies) return true;
  return follow_events && order->IsAfter(vacant.pending->command);
}

// First fit over contiguous ranges within a segment.
Block* MemoryPool::Take(uint64_t bytes, const Stream* stream, Reach reach,
                        std::vector<Command*>* waits) {
  const uint64_t span = RoundUp(bytes, DeviceMemory::kAlignment);
  StreamOrder order(stream);
  uint64_t begin = 0, end = 0;
  for (const auto& [address, vacant] : vacant_) {
    if (!MayReuse(vacant, stream, reach, &order)) continue;
    if (address != end || segments_.count(address) != 0) begin = address;
    end = address + vacant.bytes;
    if (end - begin >= span) return Place(begin, bytes, stream, &order, waits);
  }
  return nullptr;
}

Block* MemoryPool::Place(uint64_t address, uint64_t bytes, const Stream* stream, StreamOrder* order,
                         std::vector<Command*>* waits) {
  const uint64_t span = RoundUp(bytes, DeviceMemory::kAlignment);
  const uint64_t end = address + span;
  for (auto at = vacant_.find(address); at != vacant_.end() && at->first < end;) {
    const uint64_t from = at->first;
    const Vacant vacant = at->second;
    at = vacant_.erase(at);
    const uint64_t taken = std::min(from + vacant.bytes, end) - from;
    // A pending free counts as used until it completes, so its bytes are counted already.
    if (vacant.pending == nullptr) {
      used.Add(taken);
    } else if (vacant.stream_id != stream->id && !order->IsAfter(vacant.pending->command)) {
      waits->push_back(vacant.pending->command);
    }
    if (taken < vacant.bytes) {
      vacant_.emplace(end, Vacant{vacant.bytes - taken, vacant.pending, vacant.stream_id});
    }
  }
  Block block{};
  block.address = address;
  block.span = span;
  block.size = bytes;
  block.id = device->memory.NextId();
  block.live = true;
  block.pool = this;
  return &live_.emplace(address, block).first->second;
}

bool MemoryPool::Grow(uint64_t bytes) {
  const uint64_t least = RoundUp(bytes, DeviceMemory::kAlignment);
  const uint64_t left = most_ - std::min(most_, reserved.now);
  if (least > left) return false;
  // The last growth before the pool's limit may be less than a granule.
  const uint64_t span = std::min(RoundUp(bytes, granule_),
                                 left / DeviceMemory::kAlignment * DeviceMemory::kAlignment);
  if (span < least) return false;
  Block* const segment = device->memory.AllocateExactly(span, nullptr);
  if (segment == nullptr) return false;
  segment->pool = this;
  segment->backs_pool = true;
  segments_.emplace(segment->address, segment);
  vacant_.emplace(segment->address, Vacant{span, nullptr, 0});
  reserved.Add(span);
  return true;
}

void MemoryPool::FreeInOrder(Block* block, Stream* stream) {
  auto owned = std::make_unique<Pending>();
  Pending* const pending = owned.get();
  *pending = {this, nullptr, stream->id, block->address, block->address + block->span};
  vacant_.emplace(block->address, Vacant{block->span, pending, stream->id});
  live_.erase(block->address);
  frees_.push_back(std::move(owned));
  Command* const command = NewCommand(stream, CommandType::kMemory);
  command->earliest = 0;
  command->memory = {MemoryWork::Kind::kPoolFree, pending, 0, 0};
  pending->command = command;
  Submit(stream, command);
}

void MemoryPool::FinishFree(Pending* pending) {
  MemoryPool* const pool = pending->pool;
  Vacants& vacant = pool->vacant_;
  // Parts of it may have been reused already.
  std::vector<uint64_t> pieces;
  for (auto at = vacant.lower_bound(pending->begin); at != vacant.end() && at->first < pending->end;
       ++at) {
    if (at->second.pending != pending) continue;
    pool->used.now -= at->second.bytes;
    at->second.pending = nullptr;
    pieces.push_back(at->first);
  }
  if (pool->opportunistic) pool->JoinAll(pieces);
  auto& frees = pool->frees_;
  frees.erase(std::find_if(frees.begin(), frees.end(),
                           [&](const auto& one) { return one.get() == pending; }));
  if (pool->handle == 0 && pool->empty()) DestroyPool(pool);
}

void MemoryPool::FreeNow(Block* block) {
  used.now -= block->span;
  const uint64_t address = block->address;
  const auto at = vacant_.emplace(address, Vacant{block->span, nullptr, 0}).first;
  live_.erase(address);
  Join(at);
  if (handle == 0 && empty()) DestroyPool(this);
}

void MemoryPool::Join(Vacants::iterator at) {
  at->second.stream_id = 0;
  const auto joins = [&](Vacants::iterator left, Vacants::iterator right) {
    return left->second.stream_id == 0 && right->second.stream_id == 0 &&
           left->first + left->second.bytes == right->first && segments_.count(right->first) == 0;
  };
  if (const auto next = std::next(at); next != vacant_.end() && joins(at, next)) {
    at->second.bytes += next->second.bytes;
    vacant_.erase(next);
  }
  if (at == vacant_.begin()) return;
  if (const auto before = std::prev(at); joins(before, at)) {
    before->second.bytes += at->second.bytes;
    vacant_.erase(at);
  }
}

void MemoryPool::Observe(uint64_t stream_id) {
  std::vector<uint64_t> seen;  // in the order of addresses
  for (const auto& [address, vacant] : vacant_) {
    if (vacant.pending == nullptr && vacant.stream_id != 0 &&
        (stream_id == 0 || vacant.stream_id == stream_id)) {
      seen.push_back(address);
    }
  }
  JoinAll(seen);
}

void MemoryPool::JoinAll(const std::vector<uint64_t>& addresses) {
  // From the last to the first, so that joining does not move ranges that are still to come.
  for (auto address = addresses.rbegin(); address != addresses.rend(); ++address) {
    Join(vacant_.find(*address));
  }
}

void MemoryPool::Trim(uint64_t keep) {
  std::vector<std::pair<uint64_t, uint64_t>> free;
  for (const auto& [address, vacant] : vacant_) {
    if (vacant.stream_id == 0) free.emplace_back(address, address + vacant.bytes);
  }
  for (auto range = free.rbegin(); range != free.rend(); ++range) {
    const Block* const segment = SegmentOf(range->first);
    const uint64_t start = segment->address, end = segment->address + segment->span;
    const uint64_t from = start + RoundUp(range->first - start, granule_);
    uint64_t to =
        range->second == end ? end : start + (range->second - start) / granule_ * granule_;
    const uint64_t last = to;
    while (to > from) {
      const uint64_t piece = (to - start - 1) % granule_ + 1;
      if (reserved.now < keep + (last - to) + piece) break;
      to -= piece;
    }
    if (to < last) Release(to, last);
  }
}

// Both ends lie in the same segment and in one vacant range.
void MemoryPool::Release(uint64_t from, uint64_t to) {
  const auto at = LastAtOrBefore(vacant_, from);
  const uint64_t begin = at->first, end = at->first + at->second.bytes;
  vacant_.erase(at);
  if (begin < from) vacant_.emplace(begin, Vacant{from - begin, nullptr, 0});
  if (to < end) vacant_.emplace(to, Vacant{end - to, nullptr, 0});
  DeviceMemory& memory = device->memory;
  Block* segment = SegmentOf(from);
  if (to < segment->address + segment->span) {
    Block* const rest = memory.Split(segment, to - segment->address);
    segments_.emplace(rest->address, rest);
  }
  if (segment->address < from) {
    segment = memory.Split(segment, from - segment->address);
  } else {
    segments_.erase(from);
  }
  memory.Free(segment->address);
  reserved.now -= to - from;
}

Block* MemoryPool::Find(uint64_t address) {
  const auto at = LastAtOrBefore(live_, address);
  if (at == live_.end()) return nullptr;
  Block* const block = &at->second;
  return address - block->address < block->size ? block : nullptr;
}

MemoryPool* NewPool(Device* device, uint64_t most) {
  State& s = state();
  device->pools.push_back(std::make_unique<MemoryPool>(device, s.config.pool_granule, most));
  MemoryPool* const pool = device->pools.back().get();
  pool->handle = s.memory_pools.Add(pool);
  return pool;
}

MemoryPool* DefaultPool(Device* device) {
  if (device->default_pool == nullptr) {
    device->default_pool = NewPool(device, 0);
    device->default_pool->is_default = true;
  }
  return device->default_pool;
}

MemoryPool* CurrentPool(Device* device) {
  return device->current_pool != nullptr ? device->current_pool : DefaultPool(device);
}

void DestroyPool(MemoryPool* pool) {
  Device* const device = pool->device;
  if (pool->handle != 0) state().memory_pools.Remove(pool->handle);
  pool->handle = 0;
  if (device->current_pool == pool) device->current_pool = nullptr;
  pool->Trim(0);
  if (!pool->empty()) return;
  auto& pools = device->pools;
  pools.erase(
      std::find_if(pools.begin(), pools.end(), [&](const auto& one) { return one.get() == pool; }));
}

void ResetPools(Device* device) {
  State& s = state();
  const uint64_t handle = device->default_pool == nullptr ? 0 : device->default_pool->handle;
  for (const auto& pool : device->pools) {
    if (pool->handle != 0 && !pool->is_default) s.memory_pools.Remove(pool->handle);
  }
  device->pools.clear();
  device->default_pool = device->current_pool = nullptr;
  if (handle == 0) return;
  // Programs keep the handle of the default pool.
  device->pools.push_back(std::make_unique<MemoryPool>(device, s.config.pool_granule, 0));
  device->default_pool = device->pools.back().get();
  device->default_pool->is_default = true;
  device->default_pool->handle = handle;
  s.memory_pools.Fill(handle, device->default_pool);
}

void TrimPools(Device* device) {
  state().virtual_memory.Collect();
  for (const auto& pool : device->pools) pool->Trim(0);
}

void PoolsSynchronized(Device* device, uint64_t stream_id) {
  for (const auto& pool : device->pools) {
    pool->Observe(stream_id);
    const uint64_t keep = pool->handle == 0 ? 0 : pool->release_threshold;
    if (pool->reserved.now > keep) pool->Trim(keep);
  }
}

}  // namespace gpushare::sim
