// SPDX-License-Identifier: Apache-2.0
#include "gate/graph_copies.h"

#include <algorithm>
#include <utility>

namespace gpushare::gate {
namespace {

auto IsNode(driver::GraphNode node) {
  return [node](const auto& copy) { return copy.is.node == node; };
}

}  // namespace

void GraphCopies::Sum(Graph* graph) {
  graph->sum = {};
  for (const Copy& copy : graph->copies) {
    if (!copy.enabled) continue;
    graph->sum.to_device += copy.is.to_device;
    graph->sum.to_host += copy.is.to_host;
  }
}

// After a change that the driver accepted, the nodes are the same in the same order. If they are not, the first copy gets the
// sum of all.
void GraphCopies::Replace(Copy* first, size_t count, const std::vector<driver::GraphCopy>& by) {
  for (size_t i = 0; i < count; ++i) first[i].is.to_device = first[i].is.to_host = 0;
  for (size_t i = 0; count > 0 && i < by.size(); ++i) {
    driver::GraphCopy& copy = first[by.size() == count ? i : 0].is;
    copy.to_device += by[i].to_device;
    copy.to_host += by[i].to_host;
  }
}

GraphCopies::Graph* GraphCopies::FindGraph(const void* executable) {
  const auto found = graphs_.find(executable);
  return found == graphs_.end() ? nullptr : &found->second;
}

void GraphCopies::Change(const void* executable, driver::GraphNode node,
                         absl::FunctionRef<void(Copy&)> how) {
  if (kept_.load(std::memory_order_relaxed) == 0) return;
  const base::MutexLock lock(&mutex_);
  Graph* const graph = FindGraph(executable);
  if (graph == nullptr) return;
  const auto known = std::find_if(graph->copies.begin(), graph->copies.end(), IsNode(node));
  if (known == graph->copies.end()) return;
  how(*known);
  Sum(graph);
}

void GraphCopies::Put(const void* executable, const std::vector<driver::GraphCopy>& copies) {
  if (copies.empty() && kept_.load(std::memory_order_relaxed) == 0) return;
  const base::MutexLock lock(&mutex_);
  graphs_.erase(executable);
  kept_.store(graphs_.size(), std::memory_order_relaxed);
  if (copies.empty()) return;
  Graph graph;
  graph.copies.reserve(copies.size());
  for (const driver::GraphCopy& copy : copies) graph.copies.push_back({.is = copy});
  Sum(&graph);
  graphs_.emplace(executable, std::move(graph));
  kept_.store(graphs_.size(), std::memory_order_relaxed);
}

void GraphCopies::Updated(const void* executable, const std::vector<driver::GraphCopy>& copies) {
  {
    const base::MutexLock lock(&mutex_);
    Graph* const graph = FindGraph(executable);
    if (graph != nullptr && graph->copies.size() == copies.size()) {
      Replace(graph->copies.data(), graph->copies.size(), copies);
      Sum(graph);
      return;
    }
  }
  Put(executable, copies);
}

void GraphCopies::Changed(const void* executable, const driver::GraphCopy& copy) {
  const base::MutexLock lock(&mutex_);
  Graph& graph = graphs_[executable];
  const auto known = std::find_if(graph.copies.begin(), graph.copies.end(), IsNode(copy.node));
  if (known == graph.copies.end()) {
    graph.copies.push_back({.is = copy});
  } else {
    known->is.to_device = copy.to_device;
    known->is.to_host = copy.to_host;
  }
  Sum(&graph);
  kept_.store(graphs_.size(), std::memory_order_relaxed);
}

void GraphCopies::ChildChanged(const void* executable, driver::GraphNode node,
                               const std::vector<driver::GraphCopy>& copies) {
  Change(executable, node, [&](Copy& child) { Replace(&child + 1, child.is.inside, copies); });
}

void GraphCopies::SetEnabled(const void* executable, driver::GraphNode node, bool enabled) {
  Change(executable, node, [&](Copy& copy) { copy.enabled = enabled; });
}

CopyBytes GraphCopies::Find(const void* executable) const {
  if (kept_.load(std::memory_order_relaxed) == 0) return {};
  const base::MutexLock lock(&mutex_);
  const auto found = graphs_.find(executable);
  return found == graphs_.end() ? CopyBytes() : found->second.sum;
}

}  // namespace gpushare::gate
