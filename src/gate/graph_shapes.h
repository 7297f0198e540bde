// SPDX-License-Identifier: Apache-2.0
// What is known of what graphs are made of, and of the one that is studied. What is done with them: graph_shapes.cc.
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
  meter::GraphShape parts;  // none: it is not known
  bool studied = false;     // a study has found it, else its kernels are as long as by themselves
  uint64_t kept = 0;        // when, counted: the oldest make room
  uint64_t launches = 0;    // so many of it, and by when the next study is due
  uint64_t study_at = 0;
  int studies = 0;
};

// One of a GPU at a time.
struct StudiedGraph {
  TenantState* tenant = nullptr;  // null: none, or none any more
  uint32_t base = 0;              // its key's entry
  // See meter/graph_study.h.
  meter::ShapeSearch::Kernels kernels;
  meter::GraphShape taken, now;
  int most = 0;  // launches to be recorded
  bool recording = false, recorded = false;
  Time since{};      // it is recorded
  int launches = 0;  // meanwhile
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPH_SHAPES_H_
