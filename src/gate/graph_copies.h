// SPDX-License-Identifier: Apache-2.0
// What each launch of a graph copies to and from the host: that is charged to the copy limits before it goes.
//
//   copies.Put(executable, contents.copies);                   // when it was instantiated
//   copies.Changed(executable, node, moved);                   // when one of its nodes was
//   const CopyBytes bytes = copies.Find(executable);  // when it is launched
//
// Kept until the executable ends, 32 bytes for each of its copies and children: the driver keeps more of each. Nothing is kept of
// graphs that have none, and while there is no other one, a look is one load. Threading: thread-safe.
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
  // None: it is forgotten, and so is what had the handle before. May throw bad_alloc, then it is too.
  void Put(const void* executable, std::vector<driver::GraphCopy> copies);
  // It copies what another graph of the same nodes does. They go on by the handles that they had: a program changes single
  // nodes by those of the graph that was instantiated.
  void Updated(const void* executable, std::vector<driver::GraphCopy> copies);
  // A copy moves something else now. One that is not known counts besides.
  void Changed(const void* executable, const driver::GraphCopy& copy);
  // A child is like another graph now.
  void ChildChanged(const void* executable, driver::GraphNode node,
                    const std::vector<driver::GraphCopy>& copies);
  // A node that is switched off moves nothing.
  void SetEnabled(const void* executable, driver::GraphNode node, bool enabled);
  CopyBytes Find(const void* executable) const;

 private:
  struct Copy {
    driver::GraphCopy is;
    bool enabled = true;
  };
  struct Graph {
    std::vector<Copy> copies;
    CopyBytes sum;  // of those that are enabled
  };
  static void Sum(Graph* graph);
  static void Replace(Copy* first, size_t count, const std::vector<driver::GraphCopy>& by);
  // Of a node that is known, whatever `how` does to it.
  void Change(const void* executable, driver::GraphNode node, absl::FunctionRef<void(Copy&)> how);
  Graph* FindGraph(const void* executable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<size_t> kept_{0};
  mutable base::Mutex mutex_;
  std::map<const void*, Graph> graphs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_GRAPH_COPIES_H_
