// SPDX-License-Identifier: Apache-2.0
// What a graph is made of: its commands, and which of its kernels follow which.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "driver/driver.h"
#include "driver/graph_copy.h"
#include "driver/graph_kernel.h"
#include "driver/state.h"

namespace gpushare::driver {
namespace {

// The nodes of one graph and their edges, by the nodes' places in the driver's list.
struct Nodes {
  std::vector<CUgraphNode> nodes;
  std::vector<std::vector<uint32_t>> before;  // of each node, the nodes that it waits for
  std::vector<uint32_t> order;                // each node after all that it waits for
  bool branches = false;                      // some of them may run at the same time
  bool told = true;                           // false: the driver does not tell the edges
};

std::vector<CUgraphNode> NodesOf(const Table& table, CUgraph graph) {
  size_t count = 0;
  if (table.GraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) return {};
  std::vector<CUgraphNode> nodes(count);
  if (table.GraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return {};
  nodes.resize(count);
  return nodes;
}

// By the places of their nodes.
CUresult EdgesOf(const Table& table, CUgraph graph, const std::vector<CUgraphNode>& nodes,
                 std::vector<GraphEdge>* edges) {
  size_t count = 0;
  CUresult result = table.GraphGetEdges(graph, nullptr, nullptr, nullptr, &count);
  if (result != CUDA_SUCCESS) return result;
  std::vector<CUgraphNode> from(count), to(count);
  if (count > 0) result = table.GraphGetEdges(graph, from.data(), to.data(), nullptr, &count);
  if (result != CUDA_SUCCESS) return result;
  std::vector<std::pair<CUgraphNode, uint32_t>> places;
  places.reserve(nodes.size());
  for (const CUgraphNode node : nodes) {
    places.emplace_back(node, static_cast<uint32_t>(places.size()));
  }
  std::sort(places.begin(), places.end());
  const auto place_of = [&](CUgraphNode node) {
    const auto found = std::lower_bound(places.begin(), places.end(), std::pair{node, 0u});
    return found != places.end() && found->first == node ? found->second : ~0u;
  };
  edges->reserve(count);
  for (size_t i = 0; i < count; ++i) {
    edges->push_back({place_of(from[i]), place_of(to[i])});
    if (edges->back().from == ~0u || edges->back().to == ~0u) return CUDA_ERROR_UNKNOWN;
  }
  return CUDA_SUCCESS;
}

// The order is the driver's as far as the edges allow.
Nodes Read(const Table& table, CUgraph graph) {
  Nodes read;
  read.nodes = NodesOf(table, graph);
  const size_t count = read.nodes.size();
  read.before.resize(count);
  std::vector<GraphEdge> edges;
  const CUresult result = EdgesOf(table, graph, read.nodes, &edges);
  read.told = result == CUDA_SUCCESS;
  // Kernels of programmatic launches run beside those that they follow.
  read.branches = result == CUDA_ERROR_LOSSY_QUERY;
  std::vector<std::vector<uint32_t>> behind(count);
  if (read.told) {
    for (const GraphEdge& edge : edges) {
      read.before[edge.to].push_back(edge.from);
      behind[edge.from].push_back(edge.to);
    }
    const auto several = [](const std::vector<uint32_t>& ends) { return ends.size() > 1; };
    read.branches = count > 0 && (edges.size() != count - 1 ||
                                  std::any_of(read.before.begin(), read.before.end(), several) ||
                                  std::any_of(behind.begin(), behind.end(), several));
  }
  std::vector<size_t> left;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t i = 0; i < count; ++i) {
    left.push_back(read.before[i].size());
    if (left.back() == 0) ready.push(i);
  }
  while (!ready.empty()) {
    read.order.push_back(ready.top());
    ready.pop();
    for (const uint32_t next : behind[read.order.back()]) {
      if (--left[next] == 0) ready.push(next);
    }
  }
  if (read.order.size() < count) {  // not the edges of a graph
    read.told = false;
    read.before.assign(count, {});
    read.order.resize(count);
    std::iota(read.order.begin(), read.order.end(), 0u);
  }
  return read;
}

class Walk {
 public:
  Walk(const Table& table, GraphContents& contents) : table_(table), contents_(contents) {}

  // A set of kernels by their places. Those of a node are the ones that end last of it and of all before it.
  using Kernels = std::vector<uint32_t>;

  // Adds the graph, which begins after `before`, and its copies. Returns its last kernels.
  Kernels Add(CUgraph graph, const Kernels& before, std::vector<GraphCopy>& copies) {
    const Nodes read = Read(table_, graph);
    contents_.branches |= read.branches;
    told_ &= read.told;
    std::vector<Kernels> ends(read.nodes.size());
    std::vector<bool> followed(read.nodes.size());
    std::vector<std::vector<GraphCopy>> copies_of(read.nodes.size());
    for (const uint32_t place : read.order) {
      Kernels begins;
      if (read.before[place].empty()) Join(begins, before);
      for (const uint32_t earlier : read.before[place]) {
        followed[earlier] = true;
        Join(begins, ends[earlier]);
      }
      ends[place] = AddNode(read.nodes[place], std::move(begins), copies_of[place]);
    }
    Kernels last;
    if (read.nodes.empty()) Join(last, before);
    for (size_t i = 0; i < ends.size(); ++i) {
      if (!followed[i]) Join(last, ends[i]);
      std::move(copies_of[i].begin(), copies_of[i].end(), std::back_inserter(copies));
    }
    return last;
  }

  void Finish() {
    if (!counted_) contents_.commands = 0;
    contents_.memory = contents_.branches ? allocated_ : peak_;
    if (told_ && contents_.branches && contents_.IsOfKernelsAlone()) {
      contents_.edges = std::move(edges_);
    }
  }

 private:
  Kernels AddNode(CUgraphNode node, Kernels before, std::vector<GraphCopy>& copies) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (table_.GraphNodeGetType(node, &type) != CUDA_SUCCESS) {
      counted_ = contents_.all_kernels = false;
      return before;
    }
    CUgraph child = nullptr;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      ++contents_.commands;
      CUDA_KERNEL_NODE_PARAMS kernel{};
      if (table_.GraphKernelNodeGetParams(node, &kernel) != CUDA_SUCCESS) {
        contents_.all_kernels = false;
        return before;
      }
      return AddKernel(KernelOf(kernel), before);
    }
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
      ++contents_.commands;
      CUDA_MEMCPY3D copy{};
      const bool told = table_.GraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS;
      copies.push_back(told ? CopyOf(table_, node, copy) : GraphCopy{.node = node});
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
      ++contents_.commands;
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
               table_.GraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
      std::vector<GraphCopy> inside;
      before = Add(child, before, inside);
      copies.push_back({.node = node, .inside = static_cast<uint32_t>(inside.size())});
      copies.insert(copies.end(), inside.begin(), inside.end());
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      contents_.all_kernels = false;
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      AddAllocation(node);
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      AddFree(node);
    }
    return before;
  }

  void AddAllocation(CUgraphNode node) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    if (table_.GraphMemAllocNodeGetParams(node, &parameters) != CUDA_SUCCESS) return;
    live_[parameters.dptr] = parameters.bytesize;
    allocated_ += parameters.bytesize;
    held_ += parameters.bytesize;
    peak_ = std::max(peak_, held_);
  }
  void AddFree(CUgraphNode node) {
    CUdeviceptr pointer = 0;
    if (table_.GraphMemFreeNodeGetParams(node, &pointer) != CUDA_SUCCESS) return;
    const auto freed = live_.find(pointer);
    if (freed == live_.end()) return;  // of another graph
    held_ -= freed->second;
    live_.erase(freed);
  }

  Kernels AddKernel(const GraphKernel& kernel, const Kernels& before) {
    const auto place = static_cast<uint32_t>(contents_.kernels.size());
    contents_.kernels.push_back(kernel);
    if (told_) {
      for (const uint32_t earlier : before) edges_.push_back({earlier, place});
    }
    told_ &= edges_.size() <= GraphContents::kMostEdges * contents_.kernels.size();
    return {place};
  }

  // Adds `more` to `kernels`, which is sorted as all sets are. Behind many kernels, thousands of nodes without commands may each
  // have a set of all of these. Then the edges are given up.
  void Join(Kernels& kernels, const Kernels& more) {
    joined_ += kernels.size() + more.size();
    told_ &= joined_ <= kMostJoined;
    if (!told_) return;
    if (kernels.empty()) {
      kernels = more;
      return;
    }
    Kernels both;
    both.reserve(kernels.size() + more.size());
    std::set_union(kernels.begin(), kernels.end(), more.begin(), more.end(),
                   std::back_inserter(both));
    kernels = std::move(both);
  }

  static constexpr size_t kMostJoined = size_t{1} << 20;

  const Table& table_;
  GraphContents& contents_;
  size_t joined_ = 0;  // kernels in all sets
  std::map<CUdeviceptr, uint64_t> live_;
  uint64_t allocated_ = 0, held_ = 0, peak_ = 0;
  std::vector<GraphEdge> edges_;
  bool told_ = true;     // the edges are all there
  bool counted_ = true;  // the commands are
};

}  // namespace

GraphContents Driver::ContentsOf(Graph graph) const {
  GraphContents contents;
  Walk walk(state_->table, contents);
  walk.Add(graph, {}, contents.copies);
  walk.Finish();
  return contents;
}

}  // namespace gpushare::driver
