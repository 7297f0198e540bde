// SPDX-License-Identifier: Apache-2.0
#include "gate/graph_kernels.h"

#include <utility>

namespace gpushare::gate {
namespace {

// By this part of a graph's cost its kernels may differ from it in the sum: clocks change.
constexpr float kAlike = 0.3f;

}  // namespace

void GraphKernels::Forget(const void* executable) {
  const auto found = graphs_.find(executable);
  if (found == graphs_.end()) return;
  kept_ -= found->second.keys.size() + kWordsPerGraph;
  asked_.erase(found->second.place);
  graphs_.erase(found);
}

void GraphKernels::Put(const void* executable, std::vector<uint64_t> keys) {
  const base::MutexLock lock(&mutex_);
  Forget(executable);
  const size_t more = keys.size() + kWordsPerGraph;
  if (keys.empty() || more > kMostKept) return;
  while (kept_ + more > kMostKept) Forget(asked_.back());
  std::list<const void*> place = {executable};
  graphs_.emplace(executable, Graph{std::move(keys), place.begin()});
  asked_.splice(asked_.begin(), place);  // its iterator stays
  kept_ += more;
}

std::vector<uint64_t> GraphKernels::Find(const void* executable) const {
  const base::MutexLock lock(&mutex_);
  const auto found = graphs_.find(executable);
  if (found == graphs_.end()) return {};
  asked_.splice(asked_.begin(), asked_, found->second.place);
  return found->second.keys;
}

std::vector<float> PartsOf(const meter::CostModel& costs, const std::vector<uint64_t>& kernels,
                           float cost_ns) {
  std::vector<float> parts;
  if (kernels.empty() || cost_ns <= 0) return parts;
  parts.reserve(kernels.size());
  float sum = 0;
  uint64_t context = 0;
  for (const uint64_t key : kernels) {
    const float cost = costs.Known(key, context);
    if (cost <= 0) return {};
    parts.push_back(cost);
    sum += cost;
    context = meter::CostModel::Next(context, key);
  }
  if (sum < (1 - kAlike) * cost_ns || sum > (1 + kAlike) * cost_ns) return {};
  for (float& part : parts) part /= sum;
  return parts;
}

}  // namespace gpushare::gate
