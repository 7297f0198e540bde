// SPDX-License-Identifier: Apache-2.0
// Graphs. A launch is one command, described by gate/graphs.h. Its copies to and from the host count towards the copy limits
// too.
#include <new>

#include "driver/graph_copy.h"
#include "work/calls.h"
#include "work/submit.h"

namespace gpushare::work {

float Calls::GraphFootprint(const driver::GraphContents& graph) {
  return gate::GraphFootprint(
      graph, [this](const driver::GraphKernel& kernel) { return KernelFootprint(kernel); });
}

void Calls::GraphIs(CUgraphExec exec, CUgraph graph, bool updated) {
  const auto footprint = [this](const driver::GraphKernel& kernel) {
    return KernelFootprint(kernel);
  };
  try {
    const driver::GraphContents contents = opened_.ContentsOf(graph);
    spread_.Put(exec, spread_.PlacesOf(contents));
    if (updated) {
      graphs_.Updated(exec, contents, footprint);
    } else {
      graphs_.Instantiated(exec, contents, footprint);
    }
  } catch (const std::bad_alloc&) {
    // The driver has instantiated the graph, so the call must succeed.
    graphs_.Unseen(exec);
  }
}

void Calls::GraphInstantiated(CUgraphExec exec, CUgraph graph) {
  GraphIs(exec, graph, /*updated=*/false);
}

void Calls::GraphUpdated(CUgraphExec exec, CUgraph graph) {
  GraphIs(exec, graph, /*updated=*/true);
}

void Calls::GraphCopyChanged(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D& copy) {
  try {
    graphs_.CopyChanged(exec, driver::CopyOf(driver_, node, copy));
  } catch (const std::bad_alloc&) {
    // The driver has made the change, so the call must succeed. The copies count as before.
  }
}

void Calls::GraphChildChanged(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  try {
    graphs_.ChildChanged(exec, node, opened_.ContentsOf(child).copies);
  } catch (const std::bad_alloc&) {
    // As in GraphCopyChanged().
  }
}

CUresult Calls::GraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                          unsigned long long flags) {
  const CUresult result = driver_.GraphInstantiateWithFlags(exec, graph, flags);
  if (result == CUDA_SUCCESS) GraphInstantiated(*exec, graph);
  return result;
}

CUresult Calls::GraphLaunch(const Payer& payer, CUgraphExec exec, CUstream stream) {
  return GraphLaunchBy(payer, exec, stream, [&] { return driver_.GraphLaunch(exec, stream); });
}

CUresult Calls::GraphLaunchBy(const Payer& payer, CUgraphExec exec, CUstream stream,
                              absl::FunctionRef<CUresult()> call) {
  // A captured launch does not run, so the next launch is still the first one of the new version.
  if (streams_.Capturing(stream)) return call();
  const gate::Work work = graphs_.NextLaunch(exec);
  const Spread::Places places = spread_.Find(exec);
  const auto launch = [&] {
    return places.empty() ? Submit(payer, stream, work, call)
                          : LaunchSpread(payer, places, stream, work, call);
  };
  const gate::CopyBytes bytes = graphs_.CopiesOf(exec);
  return bytes.any() ? Crossing(payer, stream, bytes, launch) : launch();
}

CUresult Calls::GraphExecDestroy(CUgraphExec exec) {
  GraphDestroyed(exec);
  return driver_.GraphExecDestroy(exec);
}

}  // namespace gpushare::work
