// SPDX-License-Identifier: Apache-2.0
// The shape by which the replay treats a graph: commands one after the other, each with a part of the graph's time.
//
//   meter::GraphShape shape = {{.length = 0.25f, .footprint = 1}, {.length = 0.75f, .footprint = 0.5f}};
#ifndef GPUSHARE_METER_GRAPH_SHAPE_H_
#define GPUSHARE_METER_GRAPH_SHAPE_H_

#include <vector>

namespace gpushare::meter {

struct GraphPart {
  float length = 1;     // part of the graph's time; the lengths of all parts add up to 1
  float footprint = 1;  // as in Replay::Command
  friend bool operator==(const GraphPart&, const GraphPart&) = default;
};

using GraphShape = std::vector<GraphPart>;

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_GRAPH_SHAPE_H_
