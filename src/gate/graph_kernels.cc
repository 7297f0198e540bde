// SPDX-License-Identifier: Apache-2.0
#include "gate/graph_kernels.h"

#include <utility>

namespace gpushare::gate {
namespace {

// The sum of the kernels' costs may differ from the graph's cost by this part of it, since clocks change.
constexpr float kAlike = 0.3f;

size_t WordsOf(const std::vector<KernelInGraph>& kernels) {
  constexpr size_t kWordsPerKernel = sizeof(KernelInGraph) / sizeof(uint64_t);
  return kernels.size() * kWordsPerKernel + GraphKernels::kWordsPerGraph;
}

}  // namespace

void GraphKernels::Forget(const void* executable) {
  const auto found = graphs_.find(executable);
  if (found == graphs_.end()) return;
  kept_ -= WordsOf(found->second.kernels);
  asked_.erase(found->second.place);
  graphs_.erase(found);
}

void GraphKernels::Put(const void* executable, std::vector<KernelInGraph> kernels) {
  const base::MutexLock lock(&mutex_);
  Forget(executable);
  const size_t more = WordsOf(kernels);
  if (kernels.empty() || more > kMostKept) return;
  while (kept_ + more > kMostKept) Forget(asked_.back());
  std::list<const void*> place = {executable};
  graphs_.emplace(executable, Graph{std::move(kernels), place.begin()});
  asked_.splice(asked_.begin(), place);  // the iterator stays valid
  kept_ += more;
}

std::vector<KernelInGraph> GraphKernels::Find(const void* executable) const {
  const base::MutexLock lock(&mutex_);
  const auto found = graphs_.find(executable);
  if (found == graphs_.end()) return {};
  asked_.splice(asked_.begin(), asked_, found->second.place);
  return found->second.kernels;
}

std::vector<float> PartsOf(const meter::CostModel& costs, const std::vector<KernelInGraph>& kernels,
                           float cost_ns) {
  std::vector<float> parts;
  if (kernels.empty() || cost_ns <= 0) return parts;
  parts.reserve(kernels.size());
  float sum = 0;
  uint64_t context = 0;
  for (const KernelInGraph& kernel : kernels) {
    const float cost = costs.Known(kernel.key, context);
    if (cost <= 0) return {};
    parts.push_back(cost);
    sum += cost;
    context = meter::CostModel::Next(context, kernel.key);
  }
  if (sum < (1 - kAlike) * cost_ns || sum > (1 + kAlike) * cost_ns) return {};
  for (float& part : parts) part /= sum;
  return parts;
}

}  // namespace gpushare::gate
