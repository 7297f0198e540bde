// SPDX-License-Identifier: Apache-2.0
// What is known of graphs' executables, and so what a launch of one is to the gate.
//
//   graphs.Instantiated(executable, driver->ContentsOf(graph), footprint_of);   // when it was instantiated
//   const CopyBytes bytes = graphs.CopiesOf(executable);                        // when it is launched
//   const Admission admission = gate->Admit(*stream, graphs.NextLaunch(executable));
//
// A launch is one command, learnt by its executable, and replayed as the commands that it is made of. One that was changed
// since its last launch is taken to cost what it did, until that launch was measured; so is one that has the handle of
// another that was destroyed. What the host has no memory for is charged as a graph that nobody saw.
//
// Threading: thread-safe. One for all who have the same driver: its handles are no other's.
#ifndef GPUSHARE_GATE_GRAPHS_H_
#define GPUSHARE_GATE_GRAPHS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "driver/driver.h"
#include "gate/engine.h"
#include "gate/graph_copies.h"
#include "gate/graph_kernels.h"
#include "gate/work_keys.h"

namespace gpushare::gate {

class Graphs {
 public:
  // Of one of its kernels; 1 where it is not known.
  using FootprintOf = absl::FunctionRef<float(const driver::GraphKernel&)>;

  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Another may have had the handle.
  void Instantiated(const void* executable, driver::GraphContents contents, FootprintOf of) {
    Is(executable, std::move(contents), of, /*updated=*/false);
  }
  // It came to be like another graph of the same nodes.
  void Updated(const void* executable, driver::GraphContents contents, FootprintOf of) {
    Is(executable, std::move(contents), of, /*updated=*/true);
  }
  void Unseen(const void* executable);
  // One of its kernels, or several that are one command of it, came to be of this footprint at least.
  void Changed(const void* executable, float footprint);
  void CopyChanged(const void* executable, const driver::GraphCopy& copy) {
    copies_.Changed(executable, copy);
  }
  void ChildChanged(const void* executable, driver::GraphNode node,
                    const std::vector<driver::GraphCopy>& copies) {
    copies_.ChildChanged(executable, node, copies);
  }
  void NodeEnabled(const void* executable, driver::GraphNode node, bool enabled) {
    copies_.SetEnabled(executable, node, enabled);
  }
  void Ended(const void* executable);

  // What is captured is no launch: the next one is still the first of a new version.
  Work NextLaunch(const void* executable);
  CopyBytes CopiesOf(const void* executable) const { return copies_.Find(executable); }

 private:
  void Is(const void* executable, driver::GraphContents contents, FootprintOf of, bool updated);
  std::atomic<uint32_t>& VersionOf(const void* executable);
  void NewVersion(const void* executable);

  // Executables whose handles fall together are measured anew together. The lowest bit says that one was changed.
  std::array<std::atomic<uint32_t>, 1024> versions_{};
  GraphParts parts_;
  GraphKernels kernels_;
  GraphCopies copies_;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPHS_H_
