// SPDX-License-Identifier: Apache-2.0
// Operations on graphs.
#ifndef GPUSHARE_SIM_GRAPH_OPS_H_
#define GPUSHARE_SIM_GRAPH_OPS_H_

#include <memory>
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/graph.h"

namespace gpushare::sim {

// Adds a node and gives it a handle. Nodes are kept in the order of creation.
GraphNode* AddNode(Graph* graph, NodeType type, const std::vector<GraphNode*>& dependencies);
void RemoveNode(GraphNode* node);
// Invalidates the handles of the graph, of its nodes and of its child graphs. The caller still owns the graph.
void DropGraph(Graph* graph);
std::unique_ptr<Graph> CloneGraph(const Graph& graph);
// Copies what a node does: everything but handle, graph, edges and child.
void CopyWorkOf(const GraphNode& from, GraphNode* to);

// Makes the node launch the kernel, with a copy of the parameters. A CUresult.
CUresult SetKernel(GraphNode* node, Context* context, const Function* function,
                   const LaunchShape& shape, void* const* parameters, const uint8_t* packed,
                   uint64_t packed_bytes);

CUresult Instantiate(const Graph& graph, Context* context, GraphExec** exec);
void DestroyExec(GraphExec* exec);
// The executable's copy of a node. Null if the node is no longer in the graph that the executable was made from.
GraphExec::Node* FindInExec(GraphExec* exec, uint64_t node);
// Submits the executable to the stream as one command.
CUresult LaunchExec(GraphExec* exec, Stream* stream);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_OPS_H_
