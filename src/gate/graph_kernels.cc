// SPDX-License-Identifier: Apache-2.0
#include "gate/graph_kernels.h"

#include <utility>

#include "meter/graph_study.h"

namespace gpushare::gate {
namespace {

using meter::CostModel;

size_t WordsOf(const KernelsInGraph& graph) {
  constexpr size_t kWordsPerKernel = sizeof(KernelInGraph) / sizeof(uint64_t);
  static_assert(sizeof(driver::GraphEdge) == sizeof(uint64_t));
  const size_t edges = graph.edges.has_value() ? graph.edges->size() : 0;
  return graph.kernels.size() * kWordsPerKernel + edges + GraphKernels::kWordsPerGraph;
}

// What was launched before each kernel, if each branch was launched on a stream of its own.
std::vector<uint64_t> ContextsOf(const KernelsInGraph& graph) {
  std::vector<uint64_t> contexts(graph.kernels.size(), 0);
  const auto follow = [&](size_t from, size_t to) {
    contexts[to] = CostModel::Next(contexts[from], graph.kernels[from].key);
  };
  if (!graph.edges.has_value()) {
    for (size_t i = 1; i < contexts.size(); ++i) follow(i - 1, i);
    return contexts;
  }
  std::vector<bool> found(contexts.size());
  // The edges come by `to`, and of each kernel the first one first.
  for (const driver::GraphEdge& edge : *graph.edges) {
    if (!found[edge.to]) follow(edge.from, edge.to);
    found[edge.to] = true;
  }
  return contexts;
}

}  // namespace

void GraphKernels::Forget(const void* executable) {
  const auto found = graphs_.find(executable);
  if (found == graphs_.end()) return;
  kept_ -= WordsOf(found->second.kernels);
  asked_.erase(found->second.place);
  graphs_.erase(found);
}

void GraphKernels::Put(const void* executable, KernelsInGraph kernels) {
  const base::MutexLock lock(&mutex_);
  Forget(executable);
  const size_t more = WordsOf(kernels);
  if (kernels.kernels.empty() || more > kMostKept) return;
  while (kept_ + more > kMostKept) Forget(asked_.back());
  std::list<const void*> place = {executable};
  graphs_.emplace(executable, Graph{std::move(kernels), place.begin()});
  asked_.splice(asked_.begin(), place);  // the iterator stays valid
  kept_ += more;
}

KernelsInGraph GraphKernels::Find(const void* executable) const {
  const base::MutexLock lock(&mutex_);
  const auto found = graphs_.find(executable);
  if (found == graphs_.end()) return {};
  asked_.splice(asked_.begin(), asked_, found->second.place);
  return found->second.kernels;
}

std::vector<float> PartsOf(const CostModel& costs, const KernelsInGraph& graph, float cost_ns) {
  std::vector<float> parts;
  if (graph.kernels.empty() || cost_ns <= 0) return parts;
  parts.reserve(graph.kernels.size());
  float sum = 0;
  const std::vector<uint64_t> contexts = ContextsOf(graph);
  for (size_t i = 0; i < contexts.size(); ++i) {
    const float part = costs.Known(graph.kernels[i].key, contexts[i]) / cost_ns;
    if (part <= 0) return {};
    parts.push_back(part);
    sum += part;
  }
  if (graph.edges.has_value()) return parts;
  if (!meter::GraphStudy::IsAlike(sum)) return {};
  for (float& part : parts) part /= sum;
  return parts;
}

}  // namespace gpushare::gate
