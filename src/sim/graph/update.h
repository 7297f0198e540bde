// SPDX-License-Identifier: Apache-2.0
// Changes to an executable graph: what cuGraphExecUpdate compares and copies.
#ifndef GPUSHARE_SIM_GRAPH_UPDATE_H_
#define GPUSHARE_SIM_GRAPH_UPDATE_H_

#include <memory>

#include "sim/api/api.h"
#include "sim/graph/graph.h"

namespace gpushare::sim {

// Why an update is refused; `node` and `from` as in CUgraphExecUpdateResultInfo.
struct UpdateProblem {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const GraphNode* node = nullptr;
  const GraphNode* from = nullptr;
};

// Copies the parameters of the graph's nodes to the nodes of the level, paired in the order of their creation. Changes
// everything or nothing.
UpdateProblem UpdateExec(GraphExec* exec, GraphExec::Level* level, const Graph& graph);

// Whether a node of an executable that does `from` may be changed to do `to`.
CUgraphExecUpdateResult CheckChange(const GraphExec& exec, const GraphNode& from,
                                    const GraphNode& to);

// The level made from a child graph node of the executable; null if there is no such node.
GraphExec::Level* FindChildLevel(GraphExec::Level* level, uint64_t node);

// A graph that does the same as the executable.
std::unique_ptr<Graph> GraphOf(const GraphExec& exec);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_UPDATE_H_
