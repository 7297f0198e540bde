// SPDX-License-Identifier: Apache-2.0
// Graphs with kernels on other GPUs than that of the stream they are launched into, and the stand-in streams on those GPUs.
//
//   spread.Put(exec, spread.PlacesOf(contents));          // after instantiating
//   for (const Place& place : spread.Find(exec)) ... spread.StandIn(payer.gates, place.context) ...
//
// The program's own streams do not show when a graph begins and ends on another GPU, and no node may be added to the graph. So
// the engine has a stand-in stream there for each identity. It waits for the work before the graph on the graph's own stream,
// and then for the graph. The gate of that GPU treats the time in between as a command.
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
    CUcontext context;  // a context on that device that a kernel of the graph uses
  };
  using Places = std::vector<Place>;

  explicit Spread(const driver::Driver& driver) : driver_(driver.table()) {}
  Spread(const Spread&) = delete;
  Spread& operator=(const Spread&) = delete;

  // The places where the kernels of a graph run, one for each GPU; none if all run on the current context's GPU.
  Places PlacesOf(const driver::GraphContents& graph) const;
  // Call it without places too, since an earlier executable may have had the handle.
  void Put(CUgraphExec exec, Places places);
  Places Find(CUgraphExec exec) const;

  // The identity's stand-in stream in a context; sets `made` if it is new. Null if the driver refuses to create one.
  CUstream StandIn(const Gates* gates, CUcontext context, bool* made);
  // Call it before the end of a context, when its streams are no longer in use.
  void ContextEnds(CUcontext context);
  // Makes `later` wait for everything that is on `earlier` now.
  bool Order(CUstream earlier, CUstream later) const;
  // Orders devices by their UUIDs, which is the same order in all processes.
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
