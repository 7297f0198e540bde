// SPDX-License-Identifier: Apache-2.0
// What each launch of a graph copies to and from the host. These bytes are charged to the copy limits before the launch.
//
//   copies.Put(executable, contents.copies);                   // after it was instantiated
//   copies.Changed(executable, node, moved);                   // after one of its nodes was changed
//   const CopyBytes bytes = copies.Find(executable);           // when it is launched
//
// An entry is kept until the executable ends and takes 32 bytes for each of its copies and children; the driver keeps more for
// each. Graphs without copies have no entry, and while there are no entries, Find() is one load. Threading: thread-safe.
#ifndef GPUSHARE_GATE_GRAPH_COPIES_H_
#define GPUSHARE_GATE_GRAPH_COPIES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "base/sync.h"
#include "driver/driver.h"
#include "gate/host_copy.h"

namespace gpushare::gate {

class GraphCopies {
 public:
  // Replaces the entry of an earlier executable with the same handle. Without copies there is no entry. If it throws bad_alloc,
  // there is no entry either.
  void Put(const void* executable, const std::vector<driver::GraphCopy>& copies);
  // The executable now copies what another graph with the same nodes does. The nodes keep their old handles, since a program
  // changes single nodes by the handles of the graph that was instantiated.
  void Updated(const void* executable, const std::vector<driver::GraphCopy>& copies);
  // A copy moves something else now. A copy that is not known is added.
  void Changed(const void* executable, const driver::GraphCopy& copy);
  // A child graph now copies what another graph does.
  void ChildChanged(const void* executable, driver::GraphNode node,
                    const std::vector<driver::GraphCopy>& copies);
  // A disabled node copies nothing.
  void SetEnabled(const void* executable, driver::GraphNode node, bool enabled);
  CopyBytes Find(const void* executable) const;

 private:
  struct Copy {
    driver::GraphCopy is;
    bool enabled = true;
  };
  struct Graph {
    std::vector<Copy> copies;
    CopyBytes sum;  // over the enabled copies
  };
  static void Sum(Graph* graph);
  static void Replace(Copy* first, size_t count, const std::vector<driver::GraphCopy>& by);
  // Applies `how` to the copies of a node, if the node is known.
  void Change(const void* executable, driver::GraphNode node, absl::FunctionRef<void(Copy&)> how);
  Graph* FindGraph(const void* executable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<size_t> kept_{0};
  mutable base::Mutex mutex_;
  std::map<const void*, Graph> graphs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPH_COPIES_H_
