// SPDX-License-Identifier: Apache-2.0
// Changing an executable graph: what cuGraphExecUpdate compares and copies.
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

// Gives the nodes of the level the parameters of the graph's, paired in the order of their creation.
// All or nothing.
UpdateProblem UpdateExec(GraphExec* exec, GraphExec::Level* level, const Graph& graph);

// Whether one node of an executable may do `to` instead of `from`.
CUgraphExecUpdateResult CheckChange(const GraphExec& exec, const GraphNode& from,
                                    const GraphNode& to);

// The level that a child graph node of the executable became; null: there is no such node.
GraphExec::Level* FindChildLevel(GraphExec::Level* level, uint64_t node);

// A graph that does what the executable does.
std::unique_ptr<Graph> GraphOf(const GraphExec& exec);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_UPDATE_H_
