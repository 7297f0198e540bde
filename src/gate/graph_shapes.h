// SPDX-License-Identifier: Apache-2.0
// What is known of the kernels in graphs, and the state of the graph that is being studied. graph_shapes.cc uses both.
#ifndef GPUSHARE_GATE_GRAPH_SHAPES_H_
#define GPUSHARE_GATE_GRAPH_SHAPES_H_

#include <cstdint>

#include "base/time.h"
#include "meter/graph_shape.h"
#include "meter/graph_study.h"
#include "meter/shape_search.h"

namespace gpushare::gate {

struct TenantState;

struct KnownShape {
  meter::GraphShape parts;  // empty if not known
  bool studied = false;     // found by a study; else from launches of the kernels by themselves
  uint64_t kept = 0;        // counts up with each shape that is kept; the oldest make room
  uint64_t launches = 0;    // number of launches so far
  uint64_t study_at = 0;    // number of launches at which the next study is due
  int studies = 0;
};

// At most one graph of a GPU is studied at a time.
struct StudiedGraph {
  TenantState* tenant = nullptr;  // null: none, or the study was dropped
  uint32_t base = 0;              // base entry of its key in the cost model
  // See meter/graph_study.h.
  meter::ShapeSearch::Kernels kernels;
  meter::GraphShape taken, now;
  int most = 0;  // launches to record
  bool recording = false, recorded = false;
  Time since{};      // when the recording began
  int launches = 0;  // launches since then
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPH_SHAPES_H_
