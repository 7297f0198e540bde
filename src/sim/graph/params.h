// SPDX-License-Identifier: Apache-2.0
// Converts the driver's handles and parameters to graphs, nodes and the work of nodes.
#ifndef GPUSHARE_SIM_GRAPH_PARAMS_H_
#define GPUSHARE_SIM_GRAPH_PARAMS_H_

#include <vector>

#include "sim/api/api.h"
#include "sim/graph/graph.h"

namespace gpushare::sim {

inline Graph* FindGraph(CUgraph handle) { return state().graphs.Find(handle); }
inline GraphNode* FindNode(CUgraphNode handle) { return state().nodes.Find(handle); }
inline GraphExec* FindExec(CUgraphExec handle) { return state().graph_execs.Find(handle); }
inline CUgraphNode HandleOf(const GraphNode* node) {
  return node == nullptr ? nullptr : reinterpret_cast<CUgraphNode>(node->handle);
}

// The nodes with these handles. All must belong to the graph, and no two may be the same.
CUresult FindDependencies(const Graph* graph, const CUgraphNode* handles, size_t count,
                          std::vector<GraphNode*>* dependencies);

// Each checks the parameters. If it refuses them, the node is left as it was.
CUresult FillKernelNode(GraphNode* node, const CUDA_KERNEL_NODE_PARAMS_v2* parameters);
CUresult FillCopyNode(GraphNode* node, const CUDA_MEMCPY3D* copy);
CUresult FillSetNode(GraphNode* node, const CUDA_MEMSET_NODE_PARAMS* set);
CUresult FillEventNode(GraphNode* node, CUevent event);

CUDA_KERNEL_NODE_PARAMS_v2 Widen(const CUDA_KERNEL_NODE_PARAMS_v1& old);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_PARAMS_H_
