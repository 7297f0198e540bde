// SPDX-License-Identifier: Apache-2.0
// What is known of the kernels in graphs, and the state of the graph that is being studied. Graphs are told apart by
// CostModel::IdOf() of their keys.
#ifndef GPUSHARE_GATE_GRAPH_SHAPES_H_
#define GPUSHARE_GATE_GRAPH_SHAPES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/time.h"
#include "meter/graph_shape.h"
#include "meter/graph_study.h"
#include "meter/shape_search.h"

namespace gpushare::gate {

struct TenantState;

struct KnownShape {
  bool empty() const { return parts.empty() && branched == nullptr; }
  void Clear() {
    parts.clear();
    branched = nullptr;
  }

  meter::GraphShape parts;  // empty if not known
  // Of a graph with branches in place of `parts`.
  std::shared_ptr<const meter::BranchedShape> branched;
  bool studied = false;   // found by a study; else from launches of the kernels by themselves
  uint64_t kept = 0;      // counts up with each shape that is kept; the oldest make room
  uint64_t launches = 0;  // number of launches so far
  uint64_t study_at = 0;  // number of launches at which the next study is due
  int studies = 0;
};

// The shapes of a tenant's graphs. May throw bad_alloc where it makes one.
class KnownShapes {
 public:
  // A graph's shape is renewed every 16 ms of its stream's graphs or so, so among more graphs those launched most often are
  // kept. A shape takes 8 bytes for each kernel, so all take at most 8 MiB, where each has CostModel::kMostParts kernels; with
  // branches 8 more, and 4 for each edge, of which there are up to 8.
  static constexpr size_t kMostGraphs = 256;

  KnownShape* Find(uint64_t graph);  // null: nothing is known of it
  KnownShape& For(uint64_t graph);   // makes it if there is none
  void Renew(KnownShape& shape) { shape.kept = ++kept_; }
  void Forget(uint64_t graph) { shapes_.erase(graph); }

 private:
  std::map<uint64_t, KnownShape> shapes_;
  uint64_t kept_ = 0;
};

// At most one graph of a GPU is studied at a time.
struct StudiedGraph {
  TenantState* tenant = nullptr;  // null: none, or the study was dropped
  uint64_t graph = 0;
  meter::GraphStudy::Graph about;
  int most = 0;  // launches to record
  bool recording = false, recorded = false;
  Time since{};      // when the recording began
  int launches = 0;  // launches since then
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPH_SHAPES_H_
