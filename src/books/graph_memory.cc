// SPDX-License-Identifier: Apache-2.0
// Memory of graphs. The driver takes it when a graph with allocation nodes is launched, keeps it, and lets graphs
// that do not run at once lie in the same: only its own figure says how much it has. Reserved before the first launch
// of a graph, and before one after a trim, is what it needs; afterwards the figure is charged.
#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "books/books.h"
#include "books/relaxed.h"

namespace gpushare::books {
namespace {

// The least that a device gives to graphs, if it does not tell.
constexpr uint64_t kUnit = uint64_t{2} << 20;

// Graph memory is one per device: a pool without a handle, numbered by device.
CUmemoryPool PoolOf(CUdevice device) {
  return reinterpret_cast<CUmemoryPool>(static_cast<uintptr_t>(device) + 1);
}

}  // namespace

void Books::AddNeeds(CUgraph graph, std::vector<GraphNeed>* needs) {
  size_t count = 0;
  if (driver_.GraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return;
  std::vector<CUgraphNode> nodes(count);
  if (driver_.GraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    driver_.GraphNodeGetType(node, &type);
    CUgraph child = nullptr;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
        driver_.GraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
      AddNeeds(child, needs);
    }
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        driver_.GraphMemAllocNodeGetParams(node, &parameters) != CUDA_SUCCESS) {
      continue;
    }
    const uint64_t bytes = (uint64_t{parameters.bytesize} + 511) / 512 * 512;
    const CUdevice device = parameters.poolProps.location.id;
    bool known = false;
    for (GraphNeed& need : *needs) {
      if (need.device != device) continue;
      need.bytes += bytes;
      known = true;
    }
    if (!known) needs->push_back({device, bytes});
  }
}

void Books::Instantiated(CUgraphExec exec, CUgraph graph) {
  std::vector<GraphNeed> needs;
  AddNeeds(graph, &needs);
  if (needs.empty() && !has_graph_memory_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(graph_lock_);
  graph_uses_.erase(exec);  // of one that had the handle before
  if (needs.empty()) return;
  graph_uses_[exec].needs = std::make_shared<const std::vector<GraphNeed>>(std::move(needs));
  has_graph_memory_.store(true, std::memory_order_release);
}

CUresult Books::GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                          unsigned long long flags) {
  const CUresult result = driver_.GraphInstantiateWithFlags(exec, graph, flags);
  if (result == CUDA_SUCCESS) Instantiated(*exec, graph);
  return result;
}

CUresult Books::GraphExecDestroy(CUgraphExec exec) {
  GraphUse use = UseOf(exec, /*forget=*/true);
  const CUresult result = driver_.GraphExecDestroy(exec);
  if (result != CUDA_SUCCESS && use.needs != nullptr) {
    const std::lock_guard lock(graph_lock_);
    graph_uses_.try_emplace(exec, std::move(use));
  }
  return result;
}

Books::GraphUse Books::UseOf(CUgraphExec exec, bool forget) {
  if (!has_graph_memory_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(graph_lock_);
  const auto at = graph_uses_.find(exec);
  if (at == graph_uses_.end()) return {};
  GraphUse use = at->second;
  if (forget) graph_uses_.erase(at);
  return use;
}

uint8_t Books::NumberOf(const GraphNeed& need) { return graphs_.NumberOf(PoolOf(need.device)); }

bool Books::ArePaid(const std::vector<GraphNeed>& needs) {
  return std::all_of(needs.begin(), needs.end(),
                     [&](const GraphNeed& need) { return graphs_.IsPaid(NumberOf(need)); });
}

bool Books::AreBalanced(const std::vector<GraphNeed>& needs) {
  return std::all_of(needs.begin(), needs.end(), [&](const GraphNeed& need) {
    uint64_t reserved = 0;
    return driver_.DeviceGetGraphMemAttribute(need.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                              &reserved) == CUDA_SUCCESS &&
           graphs_.IsBalanced(NumberOf(need), reserved);
  });
}

Answer Books::GraphLaunch(const Payer& payer, CUgraphExec exec, CUstream stream) {
  return WithGraphMemory(payer, exec, stream, [&] { return driver_.GraphLaunch(exec, stream); });
}

Answer Books::GraphUpload(const Payer& payer, CUgraphExec exec, CUstream stream) {
  return WithGraphMemory(payer, exec, stream, [&] { return driver_.GraphUpload(exec, stream); });
}

template <typename Call>
Answer Books::WithGraphMemory(const Payer& payer, CUgraphExec exec, CUstream stream,
                              const Call& call) {
  const GraphUse use = UseOf(exec, /*forget=*/false);
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (use.needs == nullptr || driver_.StreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
      capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return {call()};
  }
  const std::vector<GraphNeed>& needs = *use.needs;
  // Launches of one executable follow each other, so what it had will do again, unless it was trimmed: then this
  // launch is its first. Of what it had nothing is asked between here and the call.
  const uint64_t trims = graph_trims_.load();
  const bool again = use.payer == payer.account && use.trims == trims;
  if (again && ArePaid(needs)) {
    const Answer answer{call()};
    if (answer.ok() && AreBalanced(needs)) return answer;
    // It runs beside another that it shared memory with, or the driver looked for room.
    for (const GraphNeed& need : needs) {
      if (answer.ok()) {
        PayForGraphs(payer, NumberOf(need));
      } else {
        ReconcileGraphs(NumberOf(need), nullptr);
      }
    }
    return answer;
  }
  struct Held {
    uint8_t number;
    uint64_t bytes;
  };
  std::vector<Held> held;
  for (const GraphNeed& need : needs) {
    held.push_back({NumberOf(need), 0});
    const uint8_t number = held.back().number;
    graphs_.SetDevice(number, need.device);
    // What an earlier launch took and the quota had no room for is paid first.
    if (graphs_.DebtOf(number, payer.account) > 0 && !PayDebt(payer, graphs_, number)) {
      return Refused(payer);
    }
  }
  uint64_t reserved = 0;
  Answer answer;
  for (size_t i = 0; i < held.size() && !again; ++i) {
    const uint64_t unit = GraphUnit(needs[i].device);
    const uint64_t bytes = (needs[i].bytes + unit - 1) / unit * unit;
    answer = Reserve(payer, bytes);
    if (!answer.ok()) break;
    graphs_.Expect(held[i].number, bytes);
    held[i].bytes = bytes;
    reserved += bytes;
  }
  if (answer.ok()) answer.result = call();
  if (!answer.ok()) {
    payer.account->Cancel(reserved);
    for (const Held& one : held) {
      graphs_.Abandon(one.number, payer.account, payer.owner, 0, one.bytes);
      ReconcileGraphs(one.number, nullptr);
    }
    return answer;
  }
  payer.account->Commit(reserved);
  for (const Held& one : held) {
    graphs_.Took(one.number, payer.account, payer.owner, 0, one.bytes);
    PayForGraphs(payer, one.number);
  }
  const std::lock_guard lock(graph_lock_);
  if (const auto at = graph_uses_.find(exec); at != graph_uses_.end()) {
    at->second.payer = payer.account;
    at->second.trims = trims;
  }
  return answer;
}

uint64_t Books::GraphUnit(CUdevice device) {
  uint64_t unit = graph_unit_.load(std::memory_order_relaxed);
  if (unit != 0) return unit;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  size_t granularity = 0;
  const bool told =
      driver_.MemGetAllocationGranularity(&granularity, &properties,
                                          CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS;
  unit = told && granularity > 0 ? granularity : kUnit;
  graph_unit_.store(unit, std::memory_order_relaxed);
  return unit;
}

// What there is no room for is owed: until it is paid, the payer launches no more graphs that allocate.
void Books::PayForGraphs(const Payer& payer, uint8_t number) {
  uint64_t claim = 0;
  for (const bool room : {false, true}) {
    if (room) MakeRoom(*payer.account);
    ReconcileGraphs(number, &claim);
    if (claim == 0) return;
    if (payer.account->TryReserve(claim)) {
      payer.account->Commit(claim);
      return graphs_.Pay(number, payer.account, payer.owner, claim);
    }
  }
  graphs_.Owe(number, payer.account, claim);
}

void Books::ReconcileGraphs(uint8_t number, uint64_t* claim) {
  Pools::Reading reading = graphs_.BeginReading(number);
  std::vector<Pools::Credit> credits;
  bool settled = false;
  for (int i = 0; i < Pools::kReads && reading.pool != nullptr && !settled; ++i) {
    uint64_t reserved = 0;
    if (driver_.DeviceGetGraphMemAttribute(graphs_.DeviceOf(number),
                                           CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                           &reserved) != CUDA_SUCCESS) {
      break;
    }
    settled = graphs_.Reconcile(number, &reading, reserved, claim, &credits);
  }
  if (!settled) {
    if (reading.pool != nullptr) graphs_.EndReading(number);
    if (claim != nullptr) graphs_.Leave(number, std::exchange(*claim, 0));
  }
  Credit(credits);
}

// Counted before, for launches that begin meanwhile, and after, for those that saw what was there before.
CUresult Books::TrimGraphMemory(CUdevice device) {
  graph_trims_.fetch_add(1);
  const CUresult result = driver_.DeviceGraphMemTrim(device);
  graph_trims_.fetch_add(1);
  return result;
}

CUresult Books::DeviceGraphMemTrim(CUdevice device) {
  const CUresult result = TrimGraphMemory(device);
  for (unsigned i = 1; i <= graphs_.count(); ++i) {
    const auto number = static_cast<uint8_t>(i);
    if (graphs_.DeviceOf(number) == device) ReconcileGraphs(number, nullptr);
  }
  return result;
}

void Books::TrimGraphs(const quota::Account* account) {
  const Relaxed relaxed(driver_);
  for (unsigned i = 1; i <= graphs_.count(); ++i) {
    const auto number = static_cast<uint8_t>(i);
    if (!graphs_.HasIdle(number, account) && graphs_.DebtOf(number, account) == 0) continue;
    TrimGraphMemory(graphs_.DeviceOf(number));
    ReconcileGraphs(number, nullptr);
  }
}

}  // namespace gpushare::books
