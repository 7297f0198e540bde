// SPDX-License-Identifier: Apache-2.0
// Graphs with kernels on other GPUs than that of the stream they are launched into, and the streams that stand for them there.
//
//   spread.Put(exec, spread.PlacesOf(contents));          // when it was instantiated
//   for (const Place& place : spread.Find(exec)) ... spread.StandIn(payer.gates, place.context) ...
//
// Nothing of the program's marks where a graph begins and ends on another GPU, and no node may be added to it. So the
// engine has a stream there, for each identity, that waits for what stands before the graph on its own stream and then for
// the graph: to the gate of that GPU the time between is a command.
//
// Threading: thread-safe. No lock is held across a call of the driver.
#ifndef GPUSHARE_WORK_SPREAD_H_
#define GPUSHARE_WORK_SPREAD_H_

#include <cuda.h>

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "driver/driver.h"
#include "driver/table.h"
#include "work/payer.h"

namespace gpushare::work {

class Spread {
 public:
  struct Place {
    CUdevice device;
    CUcontext context;  // one there that a kernel of the graph is in
  };
  using Places = std::vector<Place>;

  explicit Spread(const driver::Driver& driver) : driver_(driver.table()) {}
  Spread(const Spread&) = delete;
  Spread& operator=(const Spread&) = delete;

  // Where the kernels of a graph run, one place a GPU; none where all run on the current context's.
  Places PlacesOf(const driver::GraphContents& graph) const;
  // No places: another executable may have had the handle.
  void Put(CUgraphExec exec, Places places);
  Places Find(CUgraphExec exec) const;

  // The identity's stream in a context; `made` when it is new. Null: the driver gives none.
  CUstream StandIn(const Gates* gates, CUcontext context, bool* made);
  // Before the end of a context, when nobody uses its streams any more.
  void ContextEnds(CUcontext context);
  // `later` goes on when all that is on `earlier` now is done.
  bool Order(CUstream earlier, CUstream later) const;
  // Puts `devices` in one order for all processes.
  bool Before(CUdevice a, CUdevice b) const;

 private:
  const driver::Table& driver_;
  std::atomic<size_t> graphs_{0};
  mutable base::Mutex mutex_;
  std::map<CUgraphExec, Places> places_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<CUcontext, const Gates*>, CUstream> stand_ins_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_SPREAD_H_
