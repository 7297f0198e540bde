// SPDX-License-Identifier: Apache-2.0
// Which kernels graphs are made of, and how long each of them is in its graph as far as it is known from launches by itself:
// programs run what they capture at least once before.
//
//   kernels.Put(executable, KernelKeysOf(contents));            // when it was instantiated
//   ...
//   work.kernels = &kernels, work.executable = executable;      // when it is launched
//   std::vector<float> lengths = PartsOf(costs, kernels.Find(executable), cost_ns);  // seldom: by the gate's slow way
//
// Bounded: 8 bytes for each kernel of a graph of up to CostModel::kMostParts and kWordsPerGraph for the graph, kMostKept words of
// all graphs together (2 MiB); then those that nobody asked about for the longest are forgotten. Threading: thread-safe.
#ifndef GPUSHARE_GATE_GRAPH_KERNELS_H_
#define GPUSHARE_GATE_GRAPH_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "driver/driver.h"
#include "gate/engine.h"
#include "meter/cost_model.h"

namespace gpushare::gate {

// The keys of its kernels in their order; none where it has something besides.
inline std::vector<uint64_t> KernelKeysOf(const driver::GraphContents& graph) {
  std::vector<uint64_t> keys;
  if (!graph.IsOfKernelsAlone() || !meter::CostModel::InParts(graph.commands)) return keys;
  keys.reserve(graph.kernels.size());
  for (const driver::GraphKernel& kernel : graph.kernels) {
    keys.push_back(KernelKey(kernel.function, kernel.shape));
  }
  return keys;
}

class GraphKernels {
 public:
  static constexpr size_t kMostKept = size_t{1} << 18;
  static constexpr size_t kWordsPerGraph =
      24;  // the nodes of the map and of the list, and what an allocation costs

  // None: it is forgotten, and so is what had the handle before. May throw bad_alloc, then it is too.
  void Put(const void* executable, std::vector<uint64_t> keys);
  std::vector<uint64_t> Find(const void* executable) const;

 private:
  struct Graph {
    std::vector<uint64_t> keys;
    std::list<const void*>::iterator place;  // in asked_
  };
  void Forget(const void* executable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  size_t kept_ ABSL_GUARDED_BY(mutex_) = 0;  // words
  std::map<const void*, Graph> graphs_ ABSL_GUARDED_BY(mutex_);
  mutable std::list<const void*> asked_ ABSL_GUARDED_BY(mutex_);  // the last first
};

// What part of the time of a graph that takes `cost_ns` each of its kernels has. None where one of them was never measured by
// itself, or where all of them together take something else than the graph: then they do other work in it, or several of
// them run at a time.
std::vector<float> PartsOf(const meter::CostModel& costs, const std::vector<uint64_t>& kernels,
                           float cost_ns);

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPH_KERNELS_H_
