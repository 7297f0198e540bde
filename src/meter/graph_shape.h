// SPDX-License-Identifier: Apache-2.0
// What a graph is taken to be made of: commands one after the other, each with a part of its time.
//
//   meter::GraphShape shape = {{.length = 0.25f, .footprint = 1}, {.length = 0.75f, .footprint = 0.5f}};
#ifndef GPUSHARE_METER_GRAPH_SHAPE_H_
#define GPUSHARE_METER_GRAPH_SHAPE_H_

#include <vector>

namespace gpushare::meter {

struct GraphPart {
  float length = 1;     // of the graph's time; those of all parts add up to 1
  float footprint = 1;  // as of Replay::Command
  friend bool operator==(const GraphPart&, const GraphPart&) = default;
};

using GraphShape = std::vector<GraphPart>;

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_GRAPH_SHAPE_H_
