// SPDX-License-Identifier: Apache-2.0
#include "sim/graph/memory.h"

#include <algorithm>
#include <utility>

#include "sim/graph/capture.h"
#include "sim/graph/ops.h"
#include "sim/state.h"
#include "sim/stream/order.h"
#include "sim/stream/transfer.h"

namespace gpushare::sim {
namespace {

bool Contains(const std::vector<uint64_t>& list, uint64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

GraphAllocation::~GraphAllocation() {
  if (device == nullptr) return;
  device->graph_memory.allocations_.erase(this);
  device->memory.Free(address);
}

bool GraphAllocation::freed_by_owner() const { return Contains(freed_by, owner); }

GraphMemory::~GraphMemory() {
  Reset();
  for (GraphAllocation* allocation : allocations_) allocation->device = nullptr;
}

std::shared_ptr<GraphAllocation> GraphMemory::NewAllocation(uint64_t bytes) {
  Block* const block = device_->memory.AllocateAddresses(bytes);
  if (block == nullptr) return nullptr;
  auto allocation = std::make_shared<GraphAllocation>();
  allocation->device = device_;
  allocation->address = block->address;
  allocation->bytes = bytes;
  block->graph = allocation.get();
  allocations_.insert(allocation.get());
  return allocation;
}

std::shared_ptr<GraphHold> GraphMemory::NewHold() {
  auto hold = std::make_shared<GraphHold>();
  hold->device = device_;
  hold->bytes = 0;
  holds_.push_back(hold);
  return hold;
}

bool GraphMemory::IsBusy(GraphHold* hold, const Stream* stream) {
  if (hold->outstanding > 0) return true;
  std::vector<GraphHold::Use>& uses = hold->uses;
  uses.erase(std::remove_if(uses.begin(), uses.end(),
                            [](const GraphHold::Use& use) {
                              return use.command->generation != use.generation;
                            }),
             uses.end());
  return std::any_of(uses.begin(), uses.end(), [&](const GraphHold::Use& use) {
    return stream == nullptr || !StreamOrder(stream).IsAfter(use.command);
  });
}

void GraphMemory::Prune() {
  // Destroying a hold may destroy allocations, but no other hold.
  std::vector<std::shared_ptr<GraphHold>> gone;
  for (auto& hold : holds_) {
    if (!hold->owned && !IsBusy(hold.get(), nullptr)) gone.push_back(std::move(hold));
  }
  holds_.erase(std::remove(holds_.begin(), holds_.end(), nullptr), holds_.end());
}

bool GraphMemory::Map(GraphHold* hold, const Stream* stream) {
  Prune();
  const uint64_t granule = state().config.pool_granule;
  const uint64_t needed = (hold->bytes + granule - 1) / granule;
  std::set<uint32_t> taken;
  for (const auto& other : holds_) {
    if (other.get() == hold || other->granules.empty() || !IsBusy(other.get(), stream)) continue;
    taken.insert(other->granules.begin(), other->granules.end());
  }
  std::vector<uint32_t> mapped;
  const auto map = [&](uint32_t one) {
    if (mapped.size() < needed && taken.insert(one).second) mapped.push_back(one);
  };
  for (const uint32_t one : hold->granules) map(one);
  for (const uint32_t one : granules_) map(one);
  if (mapped.size() < needed && state().faults.FailAllocation()) return false;
  std::vector<uint32_t> grown;
  while (mapped.size() + grown.size() < needed) {
    bool charged = device_->memory.Charge(granule);
    if (!charged && !device_->pools.empty()) {
      TrimPools(device_);
      charged = device_->memory.Charge(granule);
    }
    if (!charged) {
      device_->memory.Return(granule * grown.size());
      return false;
    }
    grown.push_back(next_++);
  }
  granules_.insert(grown.begin(), grown.end());
  mapped.insert(mapped.end(), grown.begin(), grown.end());
  hold->granules = std::move(mapped);
  reserved_high = std::max(reserved_high, reserved());
  used_high = std::max(used_high, used());
  return true;
}

uint64_t GraphMemory::reserved() const { return granules_.size() * state().config.pool_granule; }

uint64_t GraphMemory::used() {
  Prune();
  std::set<uint32_t> mapped;
  for (const auto& hold : holds_) mapped.insert(hold->granules.begin(), hold->granules.end());
  return mapped.size() * state().config.pool_granule;
}

void GraphMemory::Trim() {
  Prune();
  std::set<uint32_t> kept;
  for (const auto& hold : holds_) {
    if (IsBusy(hold.get(), nullptr)) {
      kept.insert(hold->granules.begin(), hold->granules.end());
    } else {
      hold->granules.clear();
    }
  }
  device_->memory.Return((granules_.size() - kept.size()) * state().config.pool_granule);
  granules_ = std::move(kept);
}

void GraphMemory::Reset() {
  for (const auto& hold : holds_) {
    hold->granules.clear();
    hold->uses.clear();
    hold->outstanding = 0;
  }
  device_->memory.Return(reserved());
  granules_.clear();
  reserved_high = used_high = 0;
  // Nodes and executables may outlive the device's memory, so they are detached from it.
  for (GraphAllocation* allocation : allocations_) allocation->hold = nullptr;
  auto freed = std::move(outstanding);
  outstanding.clear();
  freed.clear();
  auto holds = std::move(holds_);
  holds_.clear();
  for (const auto& hold : holds) {
    if (hold->owned) holds_.push_back(hold);
  }
}

void HoldGraphMemory(GraphExec* exec) {
  for (const auto& node : exec->nodes) {
    const NodeType type = node->work.type;
    if (type != NodeType::kMemAlloc && type != NodeType::kMemFree) continue;
    const std::shared_ptr<GraphAllocation>& allocation = node->work.allocation;
    Device* const device = allocation->device;
    if (device == nullptr) continue;
    const auto of = [&](const auto& hold) { return hold->device == device; };
    auto hold = std::find_if(exec->holds.begin(), exec->holds.end(), of);
    if (hold == exec->holds.end()) {
      hold = exec->holds.insert(hold, device->graph_memory.NewHold());
    }
    if (type == NodeType::kMemFree) continue;
    (*hold)->bytes += (allocation->bytes + 511) / 512 * 512;
    (*hold)->allocations.push_back(allocation);
  }
}

CUresult MapGraphMemory(GraphExec* exec, const Stream* stream) {
  for (const auto& hold : exec->holds) {
    if (!hold->device->graph_memory.Map(hold.get(), stream)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

namespace {

// Calls `visit` for each node that frees an allocation of another graph.
template <typename Visit>
CUresult EachForeignFree(const GraphExec* exec, const Visit& visit) {
  for (const auto& node : exec->nodes) {
    if (node->work.type != NodeType::kMemFree || node->work.allocation->freed_by_owner()) continue;
    const CUresult result = visit(node->work.allocation.get());
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult TakeGraphMemory(GraphExec* exec, const Stream* stream) {
  const bool frees = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  for (const auto& hold : exec->holds) {
    for (const auto& allocation : hold->allocations) {
      // A second allocation at the same address would lose the first.
      if (allocation->hold != nullptr && !frees) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  CUresult result = EachForeignFree(exec, [](const GraphAllocation* allocation) {
    return allocation->hold == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) return result;
  result = MapGraphMemory(exec, stream);
  if (result != CUDA_SUCCESS) return result;
  for (const auto& hold : exec->holds) {
    for (const auto& allocation : hold->allocations) {
      if (allocation->freed_by_owner() || allocation->hold != nullptr) continue;
      allocation->hold = hold.get();
      ++hold->outstanding;
      hold->device->graph_memory.outstanding[allocation->address] = allocation;
    }
  }
  return CUDA_SUCCESS;
}

void UseGraphMemory(GraphExec* exec, Command* launch) {
  for (const auto& hold : exec->holds) hold->uses.push_back({launch, launch->generation});
  EachForeignFree(exec, [&](GraphAllocation* allocation) {
    GraphHold* const hold = std::exchange(allocation->hold, nullptr);
    --hold->outstanding;
    hold->uses.push_back({launch, launch->generation});
    allocation->device->graph_memory.outstanding.erase(allocation->address);
    return CUDA_SUCCESS;
  });
}

CUresult FreeGraphMemory(GraphAllocation* allocation, Stream* stream) {
  GraphHold* const hold = std::exchange(allocation->hold, nullptr);
  if (hold == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --hold->outstanding;
  if (stream != nullptr) {
    Command* const command = NewCommand(stream, CommandType::kEmpty);
    command->earliest = 0;
    hold->uses.push_back({command, command->generation});
    Submit(stream, command);
  }
  allocation->device->graph_memory.outstanding.erase(allocation->address);
  return CUDA_SUCCESS;
}

CUresult FillAllocation(GraphNode* node, Device* device, uint64_t bytes) {
  node->allocation = device->graph_memory.NewAllocation(bytes);
  if (node->allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  node->allocation->owner = node->graph->handle;
  node->graph->has_memory_nodes = true;
  return CUDA_SUCCESS;
}

CUresult CheckFree(const Graph* graph, uint64_t address,
                   std::shared_ptr<GraphAllocation>* allocation) {
  Device* device;
  const Block* const block = FindBlock(address, &device);
  if (block == nullptr || block->graph == nullptr || block->address != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::vector<uint64_t>& freed_by = block->graph->freed_by;
  // A graph may free it once, and either the allocating graph or others may.
  if (Contains(freed_by, graph->handle)) return CUDA_ERROR_INVALID_VALUE;
  if (graph->handle == block->graph->owner ? !freed_by.empty() : block->graph->freed_by_owner()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *allocation = block->graph->shared_from_this();
  return CUDA_SUCCESS;
}

void FillFree(GraphNode* node, const std::shared_ptr<GraphAllocation>& allocation) {
  node->allocation = allocation;
  allocation->freed_by.push_back(node->graph->handle);
  node->graph->has_memory_nodes = true;
}

CUresult CaptureAllocation(Stream* stream, Device* device, uint64_t bytes, CUdeviceptr* pointer) {
  GraphNode* const node = AddCapturedNode(stream, NodeType::kEmpty);
  const CUresult result = FillAllocation(node, device, bytes);
  if (result != CUDA_SUCCESS) {
    Invalidate(stream->capture);
    return result;
  }
  node->type = NodeType::kMemAlloc;
  *pointer = node->allocation->address;
  return CUDA_SUCCESS;
}

CUresult CaptureFree(Stream* stream, CUdeviceptr pointer) {
  std::shared_ptr<GraphAllocation> allocation;
  const CUresult result = CheckFree(stream->capture->target, pointer, &allocation);
  if (result == CUDA_SUCCESS) FillFree(AddCapturedNode(stream, NodeType::kMemFree), allocation);
  return result;
}

}  // namespace gpushare::sim
