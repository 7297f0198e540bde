// SPDX-License-Identifier: Apache-2.0
// What can be done with graphs.
#ifndef GPUSHARE_SIM_GRAPH_OPS_H_
#define GPUSHARE_SIM_GRAPH_OPS_H_

#include <memory>
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/graph.h"

namespace gpushare::sim {

// Nodes with handles, in the order of creation.
GraphNode* AddNode(Graph* graph, NodeType type, const std::vector<GraphNode*>& dependencies);
void RemoveNode(GraphNode* node);
// Invalidates the handles of the graph and of its nodes, and its children's. The graph stays its
// owner's.
void DropGraph(Graph* graph);
std::unique_ptr<Graph> CloneGraph(const Graph& graph);
// All that a node does: all but handle, graph, edges and child.
void CopyWorkOf(const GraphNode& from, GraphNode* to);

// Puts a kernel into the node, parameters copied. A CUresult.
CUresult SetKernel(GraphNode* node, Context* context, const Function* function,
                   const LaunchShape& shape, void* const* parameters, const uint8_t* packed,
                   uint64_t packed_bytes);

CUresult Instantiate(const Graph& graph, Context* context, GraphExec** exec);
void DestroyExec(GraphExec* exec);
// The executable's copy of a node that still is in the graph it was made from, else null.
GraphExec::Node* FindInExec(GraphExec* exec, uint64_t node);
// Puts the executable into the stream as one command.
CUresult LaunchExec(GraphExec* exec, Stream* stream);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_OPS_H_
