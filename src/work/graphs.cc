// SPDX-License-Identifier: Apache-2.0
// Graphs: a launch is one command, learnt by its executable, and replayed as the commands that it is made of; what it copies to
// and from the host counts to the copy limits as well. One
// that was changed since its last launch is taken to cost what it did, until that launch was measured; so is one that
// has the handle of another that was destroyed.
#include <new>
#include <utility>

#include "driver/graph_copy.h"
#include "gate/work_keys.h"
#include "work/calls.h"
#include "work/submit.h"

namespace gpushare::work {
namespace {

// The versions of an executable are keys of their own.
uint64_t KeyOf(CUgraphExec exec, uint32_t version) {
  return gate::GraphKey(exec) ^ uint64_t { version } * 0xc2b2ae3d27d4eb4fu;
}

}  // namespace

// Executables whose handles fall together are measured anew together.
std::atomic<uint32_t>& Calls::VersionOf(CUgraphExec exec) {
  return graph_versions_[gate::GraphKey(exec) >> 54];
}

// The lowest bit says that it was changed.
void Calls::NewVersion(CUgraphExec exec) { VersionOf(exec).fetch_or(1, std::memory_order_relaxed); }

void Calls::GraphChanged(CUgraphExec exec, float changed) {
  NewVersion(exec);
  graph_kernels_.Put(exec, {});  // how long each of them is now nobody knows
  gate::GraphParts::Parts parts = graph_parts_.Find(exec);
  if (parts.commands == 0) return;
  parts.footprint = gate::FootprintAfterChange(parts.footprint, changed);
  graph_parts_.Put(exec, parts);
}

float Calls::GraphFootprint(const driver::GraphContents& graph) {
  return gate::GraphFootprint(
      graph, [this](const driver::GraphKernel& kernel) { return KernelFootprint(kernel); });
}

void Calls::GraphIs(CUgraphExec exec, CUgraph graph, bool updated) {
  NewVersion(exec);  // another may have had the handle
  try {
    driver::GraphContents contents = opened_.ContentsOf(graph);
    graph_parts_.Put(exec, {contents.commands, GraphFootprint(contents)});
    spread_.Put(exec, spread_.PlacesOf(contents));
    graph_kernels_.Put(exec, gate::KernelsOf(contents, [this](const driver::GraphKernel& kernel) {
                         return KernelFootprint(kernel);
                       }));
    if (updated) {
      graph_copies_.Updated(exec, std::move(contents.copies));
    } else {
      graph_copies_.Put(exec, std::move(contents.copies));
    }
  } catch (const std::bad_alloc&) {
    // The driver has made it, and its caller is to have it: it is charged as one that nobody saw.
    graph_parts_.Put(exec, {});
    graph_kernels_.Put(exec, {});
    graph_copies_.Put(exec, {});
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
    graph_copies_.Changed(exec, driver::CopyOf(driver_, node, copy));
  } catch (const std::bad_alloc&) {
    // The driver has changed it: it counts as before.
  }
}

void Calls::GraphChildChanged(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  try {
    graph_copies_.ChildChanged(exec, node, opened_.ContentsOf(child).copies);
  } catch (const std::bad_alloc&) {
    // The same.
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
  // What is captured is no launch: the next one is still the first of the new version.
  if (streams_.Capturing(stream)) return call();
  std::atomic<uint32_t>& word = VersionOf(exec);
  uint32_t version = word.load(std::memory_order_relaxed);
  while ((version & 1) != 0 &&
         !word.compare_exchange_weak(version, version + 1, std::memory_order_relaxed)) {
  }
  version = (version + 1) / 2;
  gate::Work work;
  work.key = KeyOf(exec, version);
  work.like = version > 0 ? KeyOf(exec, version - 1) : 0;
  const gate::GraphParts::Parts parts = graph_parts_.Find(exec);
  work.parts = parts.commands;
  work.footprint = parts.footprint;
  work.kind = gate::Work::Kind::kGraph;
  work.kernels = &graph_kernels_;
  work.executable = exec;
  const Spread::Places places = spread_.Find(exec);
  const auto launch = [&] {
    return places.empty() ? Submit(payer, stream, work, call)
                          : LaunchSpread(payer, places, stream, work, call);
  };
  const gate::CopyBytes bytes = graph_copies_.Find(exec);
  return bytes.any() ? Crossing(payer, stream, bytes, launch) : launch();
}

CUresult Calls::GraphExecDestroy(CUgraphExec exec) {
  GraphDestroyed(exec);
  return driver_.GraphExecDestroy(exec);
}

}  // namespace gpushare::work
