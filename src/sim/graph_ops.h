// SPDX-License-Identifier: Apache-2.0
// What can be done with graphs.
#ifndef GPUSHARE_SIM_GRAPH_OPS_H_
#define GPUSHARE_SIM_GRAPH_OPS_H_

#include <memory>
#include <vector>

#include "sim/api.h"
#include "sim/graph.h"

namespace gpushare::sim {

// Nodes with handles, in the order of creation.
GraphNode* AddNode(Graph* graph, NodeType type, const std::vector<GraphNode*>& dependencies);
void RemoveNode(GraphNode* node);
// Invalidates the handles of the graph and of its nodes, and its children's. The graph stays its
// owner's.
void DropGraph(Graph* graph);
std::unique_ptr<Graph> CloneGraph(const Graph& graph);

// Puts a kernel into the node, parameters copied. A CUresult.
CUresult SetKernel(GraphNode* node, Context* context, const Function* function,
                   const LaunchShape& shape, void* const* parameters, const uint8_t* packed,
                   uint64_t packed_bytes);

CUresult Instantiate(const Graph& graph, Context* context, GraphExec** exec);
void DestroyExec(GraphExec* exec);
// Puts the executable into the stream as one command.
CUresult LaunchExec(GraphExec* exec, Stream* stream);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_OPS_H_
