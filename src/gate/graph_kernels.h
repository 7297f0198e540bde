// SPDX-License-Identifier: Apache-2.0
// Which kernels graphs are made of, and how long each of them is in its graph as far as it is known from launches by itself:
// programs run what they capture at least once before.
//
//   kernels.Put(executable, KernelsOf(contents, footprint_of));  // when it was instantiated
//   ...
//   work.kernels = &kernels, work.executable = executable;      // when it is launched
//   std::vector<float> lengths = PartsOf(costs, kernels.Find(executable), cost_ns);  // seldom: by the gate's slow way
//
// Bounded: 16 bytes for each kernel of a graph of up to CostModel::kMostParts and kWordsPerGraph for the graph, kMostKept words of
// all graphs together (2 MiB); then those that nobody asked about for the longest are forgotten. Threading: thread-safe.
#ifndef GPUSHARE_GATE_GRAPH_KERNELS_H_
#define GPUSHARE_GATE_GRAPH_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "base/sync.h"
#include "driver/driver.h"
#include "gate/engine.h"
#include "meter/cost_model.h"

namespace gpushare::gate {

struct KernelInGraph {
  uint64_t key = 0;
  float footprint = 1;
  friend bool operator==(const KernelInGraph&, const KernelInGraph&) = default;
};

// Its kernels in their order; none where it has something besides. `of(kernel)`: the footprint of one.
inline std::vector<KernelInGraph> KernelsOf(
    const driver::GraphContents& graph, absl::FunctionRef<float(const driver::GraphKernel&)> of) {
  std::vector<KernelInGraph> kernels;
  if (!graph.IsOfKernelsAlone() || !meter::CostModel::InParts(graph.commands)) return kernels;
  kernels.reserve(graph.kernels.size());
  for (const driver::GraphKernel& kernel : graph.kernels) {
    kernels.push_back({KernelKey(kernel.function, kernel.shape), of(kernel)});
  }
  return kernels;
}

class GraphKernels {
 public:
  static constexpr size_t kMostKept = size_t{1} << 18;
  static constexpr size_t kWordsPerGraph =
      24;  // the nodes of the map and of the list, and what an allocation costs

  // None: it is forgotten, and so is what had the handle before. May throw bad_alloc, then it is too.
  void Put(const void* executable, std::vector<KernelInGraph> kernels);
  std::vector<KernelInGraph> Find(const void* executable) const;

 private:
  struct Graph {
    std::vector<KernelInGraph> kernels;
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
std::vector<float> PartsOf(const meter::CostModel& costs, const std::vector<KernelInGraph>& kernels,
                           float cost_ns);

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPH_KERNELS_H_
