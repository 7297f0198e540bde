// SPDX-License-Identifier: Apache-2.0
// What is known of graph executables, and the Work that the launch of one is for the gate.
//
//   graphs.Instantiated(executable, driver->ContentsOf(graph), footprint_of);   // after it was instantiated
//   const CopyBytes bytes = graphs.CopiesOf(executable);                        // when it is launched
//   const Admission admission = gate->Admit(*stream, graphs.NextLaunch(executable));
//
// A launch is one command whose cost is learnt per executable, and the replay treats it as the commands that it is made of. A
// graph that was changed since its last launch is predicted at its old cost until the new launch is measured; so is a graph
// that has the handle of a destroyed one. If the host has no memory for an entry, the graph is charged as an unknown one.
//
// Threading: thread-safe. All users of a driver share one object, since handles are unique within a driver.
#ifndef GPUSHARE_GATE_GRAPHS_H_
#define GPUSHARE_GATE_GRAPHS_H_

#include <array>
#include <atomic>
#include <cstdint>
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
  // The footprint of one kernel of a graph; 1 if it is not known.
  using FootprintOf = absl::FunctionRef<float(const driver::GraphKernel&)>;

  Graphs() = default;
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Another executable may have had the handle before.
  void Instantiated(const void* executable, const driver::GraphContents& contents, FootprintOf of) {
    Is(executable, contents, of, /*updated=*/false);
  }
  // The executable was updated to be like another graph with the same nodes.
  void Updated(const void* executable, const driver::GraphContents& contents, FootprintOf of) {
    Is(executable, contents, of, /*updated=*/true);
  }
  void Unseen(const void* executable);
  // One command of it, a kernel or several kernels, now has at least this footprint.
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

  // The Work of the next launch. Not to be called for a launch that is only captured: the launch after a change has to be the
  // first of a new version.
  Work NextLaunch(const void* executable);
  CopyBytes CopiesOf(const void* executable) const { return copies_.Find(executable); }

 private:
  void Is(const void* executable, const driver::GraphContents& contents, FootprintOf of,
          bool updated);
  std::atomic<uint32_t>& VersionOf(const void* executable);
  void NewVersion(const void* executable);

  // Executables whose handles map to the same place get a new version together. The lowest bit says that one was changed.
  std::array<std::atomic<uint32_t>, 1024> versions_{};
  GraphParts parts_;
  GraphKernels kernels_;
  GraphCopies copies_;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPHS_H_
