// SPDX-License-Identifier: Apache-2.0
// Memory of graphs. The driver takes it when a graph with allocation nodes is launched, keeps it, and shares it among graphs
// that do not run at the same time. Only the driver's own figure says how much that is. Before the first launch of a graph, and
// before the first one after a trim, the graph's need is reserved: all that it allocates, or, if there is no room for that, the
// most that it has at a time. Then the graph is uploaded, which takes the memory and runs nothing. Memory beyond the need is
// charged, or the launch is refused. What a launch still takes after that is a debt.
#include <algorithm>
#include <bit>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/no_cancel.h"
#include "books/books.h"
#include "books/relaxed.h"

namespace gpushare::books {
namespace {

// The unit in which graphs take memory, if the driver does not tell.
constexpr uint64_t kUnit = uint64_t{2} << 20;

// A device's graph memory is handled like a pool. It has no handle, so this makes one from the device's number.
CUmemoryPool PoolOf(CUdevice device) {
  return reinterpret_cast<CUmemoryPool>(static_cast<uintptr_t>(device) + 1);
}

}  // namespace

// Adds up what the nodes of a graph and its child graphs need.
class Books::GraphWalk {
 public:
  explicit GraphWalk(const driver::Table& driver) : driver_(driver) {}

  void Add(CUgraph graph) {
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
        Add(child);
      } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        AddAllocation(node);
      } else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        AddFree(node);
      }
    }
  }
  std::vector<GraphNeed> needs;

 private:
  struct Live {
    size_t need;
    uint64_t bytes;
  };

  void AddAllocation(CUgraphNode node) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    if (driver_.GraphMemAllocNodeGetParams(node, &parameters) != CUDA_SUCCESS) return;
    const uint64_t bytes = (uint64_t{parameters.bytesize} + 511) / 512 * 512;
    const CUdevice device = parameters.poolProps.location.id;
    size_t i = 0;
    while (i < needs.size() && needs[i].device != device) ++i;
    if (i == needs.size()) {
      needs.push_back({device, 0, 0});
      live_bytes_.push_back(0);
    }
    needs[i].bytes += bytes;
    live_bytes_[i] += bytes;
    needs[i].peak = std::max(needs[i].peak, live_bytes_[i]);
    live_[parameters.dptr] = {i, bytes};
  }
  void AddFree(CUgraphNode node) {
    CUdeviceptr pointer = 0;
    if (driver_.GraphMemFreeNodeGetParams(node, &pointer) != CUDA_SUCCESS) return;
    const auto at = live_.find(pointer);
    if (at == live_.end()) return;  // of another graph
    live_bytes_[at->second.need] -= at->second.bytes;
    live_.erase(at);
  }

  const driver::Table& driver_;
  std::vector<uint64_t> live_bytes_;  // as `needs`
  std::unordered_map<CUdeviceptr, Live> live_;
};

CUresult Books::Instantiated(CUgraphExec* exec, CUgraph graph) try {
  GraphWalk walk(driver_);
  walk.Add(graph);
  std::vector<GraphNeed>& needs = walk.needs;
  if (needs.empty() && !has_graph_memory_.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  const std::lock_guard lock(graph_lock_);
  graph_uses_.erase(*exec);  // an earlier executable may have had the handle
  if (needs.empty()) return CUDA_SUCCESS;
  auto shared = std::make_shared<const std::vector<GraphNeed>>(std::move(needs));
  graph_uses_[*exec].needs = std::move(shared);
  has_graph_memory_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
} catch (const std::bad_alloc&) {
  driver_.GraphExecDestroy(std::exchange(*exec, nullptr));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool Books::TakesMemory(CUgraph graph) {
  GraphWalk walk(driver_);
  walk.Add(graph);
  return !walk.needs.empty();
}

CUresult Books::GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                          unsigned long long flags) {
  const CUresult result = driver_.GraphInstantiateWithFlags(exec, graph, flags);
  return result == CUDA_SUCCESS ? Instantiated(exec, graph) : result;
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

Answer Books::GraphLaunch(PayerOn payer_on, CUgraphExec exec, CUstream stream) {
  const auto call = [&] { return driver_.GraphLaunch(exec, stream); };
  const GraphUse use = UseOf(exec, /*forget=*/false);
  if (use.needs == nullptr) return {call()};
  if (!IsCapturing(stream)) return WithGraphMemory(use, payer_on, exec, stream, call);
  // A captured launch takes no memory. But the capture may have ended just before the call.
  const Answer answer{call()};
  if (!answer.ok() || IsCapturing(stream)) return answer;
  for (const GraphNeed& need : *use.needs) {
    const std::optional<Payer> payer = payer_on(need.device);
    if (!payer.has_value() || payer->account == nullptr) continue;
    const GraphTake take{*payer, NumberOf(need)};
    graphs_.SetDevice(take.number, need.device);
    PayForGraphs(take);
  }
  return answer;
}

Answer Books::GraphUpload(PayerOn payer_on, CUgraphExec exec, CUstream stream) {
  // An upload takes its memory at once, even on a stream that captures.
  const auto call = [&] { return driver_.GraphUpload(exec, stream); };
  const GraphUse use = UseOf(exec, /*forget=*/false);
  return use.needs == nullptr ? Answer{call()} : WithGraphMemory(use, payer_on, exec, stream, call);
}

template <typename Call>
Answer Books::WithGraphMemory(const GraphUse& use, PayerOn payer_on, CUgraphExec exec,
                              CUstream stream, const Call& call) {
  const base::NoCancel
      whole;  // the memory taken must be paid for or given back, whatever the launch returns
  const std::vector<GraphNeed>& needs = *use.needs;
  GraphTakes takes;
  // Launches of one executable run one after the other, so the memory of the last launch is enough unless a trim came between.
  // After a trim this counts as a first launch.
  const uint64_t trims = graph_trims_.load();
  bool again = use.trims == trims && use.accounts.size() == needs.size();
  for (const GraphNeed& need : needs) {
    const std::optional<Payer> payer = payer_on(need.device);
    if (!payer.has_value()) return {CUDA_ERROR_OUT_OF_MEMORY};
    again = again && use.accounts[takes.size()] == payer->account;
    takes.push_back({*payer, NumberOf(need)});
  }
  if (again && ArePaid(needs)) {
    const Answer answer{call()};
    if (answer.ok() && AreBalanced(needs)) return answer;
    // The graph runs at the same time as one that it shared memory with, or the driver gave up memory to find room.
    for (const GraphTake& take : takes) {
      if (answer.ok() && take.payer.account != nullptr) {
        PayForGraphs(take);
      } else {
        Reconcile(graphs_, take.number, nullptr);
      }
    }
    return answer;
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    const GraphTake& take = takes[i];
    graphs_.Prepare(take.number);
    graphs_.SetDevice(take.number, needs[i].device);
    // A debt from an earlier launch is paid first.
    if (take.payer.account != nullptr && graphs_.DebtOf(take.number, take.payer.account) > 0 &&
        !PayDebt(take.payer, graphs_, take.number)) {
      return Refused(take.payer);
    }
  }
  Answer answer;
  if (!again) answer = TakeForGraph(needs, exec, stream, &takes);
  if (!answer.ok()) return answer;
  answer.result = call();
  if (!answer.ok()) {
    if (!again) GiveBack(needs, &takes);
    for (const GraphTake& take : takes) Reconcile(graphs_, take.number, nullptr);
    return answer;
  }
  for (const GraphTake& take : takes) {
    quota::Account* const account = take.payer.account;
    if (account == nullptr) continue;
    account->Commit(take.bytes);
    graphs_.Took(take.number, account, take.payer.owner, 0);
    graphs_.Pay(take.number, account, take.payer.owner, take.bytes);
    PayForGraphs(take);
    graphs_.End(take.number);
  }
  const std::lock_guard lock(graph_lock_);
  if (const auto at = graph_uses_.find(exec); at != graph_uses_.end()) {
    GraphUse& now = at->second;
    now.accounts.clear();
    try {
      now.accounts.reserve(takes.size());
    } catch (const std::bad_alloc&) {
      return answer;  // the next launch counts as a first one
    }
    for (const GraphTake& take : takes) now.accounts.push_back(take.payer.account);
    now.trims = trims;
  }
  return answer;
}

Answer Books::TakeForGraph(const std::vector<GraphNeed>& needs, CUgraphExec exec, CUstream stream,
                           GraphTakes* takes) {
  const uint64_t unit_before = graph_unit_.load();
  Answer answer;
  for (size_t i = 0; i < needs.size() && answer.ok(); ++i) {
    GraphTake& take = (*takes)[i];
    if (take.payer.account == nullptr) continue;
    const uint64_t unit = GraphUnit(needs[i].device);
    uint64_t bytes = InUnits(needs[i].bytes, unit);
    if (!HasRoom(*take.payer.account, bytes)) bytes = InUnits(needs[i].peak, unit);
    answer = Reserve(take.payer, bytes);
    if (!answer.ok()) break;
    graphs_.Expect(take.number, bytes);
    take.bytes = bytes;
  }
  if (answer.ok()) {
    const CUresult uploaded = driver_.GraphUpload(exec, stream);
    // Other upload errors are ignored, since the launch will report the cause.
    if (uploaded == CUDA_ERROR_OUT_OF_MEMORY) answer.result = uploaded;
  }
  for (size_t i = 0; i < needs.size() && answer.ok(); ++i) {
    GraphTake& take = (*takes)[i];
    if (take.payer.account == nullptr || ReserveGrowth(needs[i], &take)) continue;
    GiveBack(needs, takes);
    // Try again if the unit is better known now: Reserve() may find room, or wait for it.
    if (graph_unit_.load() != unit_before) return TakeForGraph(needs, exec, stream, takes);
    return Refused(take.payer);
  }
  if (!answer.ok()) GiveBack(needs, takes);
  return answer;
}

// Undoes an upload, so that no memory of it stays taken.
void Books::GiveBack(const std::vector<GraphNeed>& needs, GraphTakes* takes) {
  const Relaxed relaxed(driver_);  // the upload may have been made on a capturing stream
  for (const GraphNeed& need : needs) TrimGraphMemory(need.device);
  for (GraphTake& take : *takes) {
    if (const uint64_t bytes = std::exchange(take.bytes, 0); bytes > 0) {
      take.payer.account->Cancel(bytes);
      graphs_.Leave(take.number, bytes);
    }
    Reconcile(graphs_, take.number, nullptr);
  }
}

// Reserves what the upload took beyond the need. This also shows the unit in which graphs take memory.
bool Books::ReserveGrowth(const GraphNeed& need, GraphTake* take) {
  quota::Account& account = *take->payer.account;
  uint64_t claim = 0;
  for (const bool room : {false, true}) {
    if (room) {
      Settle();
      SettlePools(&account);
      account.Grow(claim);
    }
    Reconcile(graphs_, take->number, &claim);
    if (claim == 0) return true;
    LearnUnit(graph_unit_, GraphUnit(need.device), need.bytes, take->bytes + claim);
    if (account.TryReserve(claim)) {
      take->bytes += claim;  // Reconcile() has added it to what is expected
      return true;
    }
  }
  graphs_.Leave(take->number, claim);
  return false;
}

uint64_t Books::GraphUnit(CUdevice device) {
  uint64_t unit = graph_unit_.load(std::memory_order_relaxed);
  if (unit != 0) return unit;
  unit = GranularityOf(device);
  graph_unit_.store(unit, std::memory_order_relaxed);
  return unit;
}

uint64_t Books::GranularityOf(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  size_t granularity = 0;
  const bool told =
      driver_.MemGetAllocationGranularity(&granularity, &properties,
                                          CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS;
  return told && std::has_single_bit(granularity) ? granularity : kUnit;
}

// What there is no room for becomes a debt. Until it is paid, the payer cannot launch graphs that allocate.
void Books::PayForGraphs(const GraphTake& take) {
  uint64_t claim = 0;
  try {
    graphs_.Prepare(take.number);
  } catch (const std::bad_alloc&) {
    return;  // the next Reconcile() charges it
  }
  Reconcile(graphs_, take.number, &claim);
  if (claim == 0) return;
  quota::Account& account = *take.payer.account;
  if (account.TryReserve(claim)) {
    account.Commit(claim);
    return graphs_.Pay(take.number, &account, take.payer.owner, claim);
  }
  MakeRoom(account);
  PayOrOwe(take.payer, graphs_, take.number, claim, 0);
}

// The trim is counted before, for launches that begin meanwhile, and after, for launches that saw the memory before the trim.
CUresult Books::TrimGraphMemory(CUdevice device) {
  graph_trims_.fetch_add(1);
  const CUresult result = driver_.DeviceGraphMemTrim(device);
  graph_trims_.fetch_add(1);
  return result;
}

CUresult Books::DeviceGraphMemTrim(CUdevice device) {
  const CUresult result = TrimGraphMemory(device);
  SettleGraphs();
  return result;
}

void Books::TrimGraphs(const quota::Account* account) {
  const Relaxed relaxed(driver_);
  for (unsigned i = 1; i <= graphs_.count(); ++i) {
    const auto number = static_cast<uint8_t>(i);
    if (!graphs_.HasIdle(number, account) && graphs_.DebtOf(number, account) == 0) continue;
    TrimGraphMemory(graphs_.DeviceOf(number));
    Reconcile(graphs_, number, nullptr);
  }
}

// Pays debts, or gives up the memory that they are for, as far as possible.
void Books::SettleGraphs() {
  for (unsigned i = 1; i <= graphs_.count(); ++i) {
    const auto number = static_cast<uint8_t>(i);
    if (graphs_.HandleOf(number) == nullptr) continue;
    Reconcile(graphs_, number, nullptr);
    if (graphs_.DebtOf(number, nullptr) == 0) continue;
    const Relaxed relaxed(driver_);
    TrimGraphMemory(graphs_.DeviceOf(number));
    Reconcile(graphs_, number, nullptr);
  }
}

}  // namespace gpushare::books
