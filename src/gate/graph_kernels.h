// SPDX-License-Identifier: Apache-2.0
// Which kernels graphs are made of, and how long each kernel takes in its graph, as far as that is known from launches of the
// kernel by itself. Programs usually run what they capture at least once before.
//
//   kernels.Put(executable, KernelsOf(contents, footprint_of));  // after it was instantiated
//   ...
//   work.kernels = &kernels, work.executable = executable;      // when it is launched
//   std::vector<float> lengths = PartsOf(costs, kernels.Find(executable), cost_ns);  // seldom, on the gate's slow path
//
// Memory is bounded: 16 bytes for each kernel of a graph of up to CostModel::kMostParts kernels, 8 for each edge, kWordsPerGraph
// for the graph, and kMostKept words for all graphs (2 MiB). Beyond that the least recently used graphs are forgotten. Threading: thread-safe.
#ifndef GPUSHARE_GATE_GRAPH_KERNELS_H_
#define GPUSHARE_GATE_GRAPH_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <utility>
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

struct KernelsInGraph {
  std::vector<KernelInGraph> kernels;  // each behind all that it waits for
  // Of a graph with branches: which follow which. Otherwise they follow one another.
  std::optional<std::vector<driver::GraphEdge>> edges = std::nullopt;
  friend bool operator==(const KernelsInGraph&, const KernelsInGraph&) = default;
};

// The kernels of a graph; none if it has other commands too. `of(kernel)` returns a footprint. Where kernels may run at the same
// time, and the driver does not tell which, each counts as one that fills the device.
inline KernelsInGraph KernelsOf(const driver::GraphContents& graph,
                                absl::FunctionRef<float(const driver::GraphKernel&)> of) {
  KernelsInGraph found;
  if (!graph.IsOfKernelsAlone() || !meter::CostModel::InParts(graph.commands)) return found;
  const bool fill = graph.branches && !graph.edges.has_value();
  found.kernels.reserve(graph.kernels.size());
  for (const driver::GraphKernel& kernel : graph.kernels) {
    found.kernels.push_back({KernelKey(kernel.function, kernel.shape), fill ? 1 : of(kernel)});
  }
  found.edges = graph.edges;
  return found;
}

class GraphKernels {
 public:
  static constexpr size_t kMostKept = size_t{1} << 18;
  static constexpr size_t kWordsPerGraph =
      24;  // nodes of the map and of the list, and the overhead of allocations

  // Replaces the entry of an earlier executable with the same handle. Without kernels there is no entry. If it throws
  // bad_alloc, there is no entry either.
  void Put(const void* executable, KernelsInGraph kernels);
  KernelsInGraph Find(const void* executable) const;

 private:
  struct Graph {
    KernelsInGraph kernels;
    std::list<const void*>::iterator place;  // in asked_
  };
  void Forget(const void* executable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  size_t kept_ ABSL_GUARDED_BY(mutex_) = 0;  // words
  std::map<const void*, Graph> graphs_ ABSL_GUARDED_BY(mutex_);
  mutable std::list<const void*> asked_ ABSL_GUARDED_BY(mutex_);  // most recently used first
};

// How long each of its kernels takes as a part of a graph's time, where the graph takes `cost_ns`. Empty if one of them was never
// measured by itself. The lengths of kernels that follow one another add up to 1. If their sum differs from the graph's cost, the
// kernels do other work in the graph, and the result is empty.
std::vector<float> PartsOf(const meter::CostModel& costs, const KernelsInGraph& graph,
                           float cost_ns);

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPH_KERNELS_H_
