// SPDX-License-Identifier: Apache-2.0
#include "snapshot.h"

#include <vector>

#include "call.h"
#include "object.h"
#include "runtime.h"
#include "spec.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

std::vector<gpushare_vdev_stats> Take(gpushare_runtime runtime) {
  using Owner = Owned<gpushare_snapshot, gpushare_snapshot_destroy>::Owner;
  gpushare_snapshot handle = nullptr;
  Check(Unlocked([&] { return gpushare_snapshot_take(runtime, &handle); }));
  const Owner owner(handle);
  size_t count = 0;
  Check(gpushare_snapshot_size(handle, &count));
  std::vector<gpushare_vdev_stats> all(count);
  for (size_t i = 0; i < count; ++i) {
    all[i].struct_size = sizeof(all[i]);
    Check(gpushare_snapshot_get(handle, i, &all[i]));
  }
  return all;
}

}  // namespace

py::object ToPython(const gpushare_vdev_stats& s) {
  py::dict d;
  d["tenant"] = s.tenant;
  d["parent"] = s.parent;
  d["gpu"] = s.gpu;
  d["time"] = Seconds(s.time_ns);
  d["suspended"] = s.suspended != 0;
  d["priority"] = PriorityName(s.priority);
  d["weight"] = s.weight;
  d["guarantee"] = s.guarantee;
  d["cap"] = s.cap;
  d["memory_limit"] = s.memory_limit;
  d["memory_used"] = s.memory_used;
  d["memory_peak"] = s.memory_peak;
  d["memory_denied"] = s.memory_denied;
  d["memory_denied_bytes"] = s.memory_denied_bytes;
  d["memory_borrowed"] = s.memory_borrowed;
  d["memory_lent"] = s.memory_lent;
  d["memory_swapped"] = s.memory_swapped;
  d["swaps_out"] = s.swaps_out;
  d["swaps_in"] = s.swaps_in;
  d["swapped_out_bytes"] = s.swapped_out_bytes;
  d["swapped_in_bytes"] = s.swapped_in_bytes;
  d["swap_time"] = Seconds(s.swap_ns);
  d["allocations"] = s.allocations;
  d["launches"] = s.launches;
  d["graph_launches"] = s.graph_launches;
  d["waits"] = s.waits;
  d["throttled"] = Seconds(s.throttled_ns);
  d["wait_p50"] = Seconds(s.wait_p50_ns);
  d["wait_p99"] = Seconds(s.wait_p99_ns);
  py::tuple histogram(GPUSHARE_WAIT_BUCKETS);
  for (size_t i = 0; i < GPUSHARE_WAIT_BUCKETS; ++i) histogram[i] = s.wait_histogram[i];
  d["wait_histogram"] = histogram;
  d["predicted"] = Seconds(s.predicted_ns);
  d["measured"] = Seconds(s.measured_ns);
  d["charged"] = Seconds(s.charged_ns);
  d["markers"] = s.markers;
  d["markers_failed"] = s.markers_failed;
  d["driver_error"] = s.driver_error;
  d["held_past_bound"] = s.held_past_bound;
  d["h2d_bytes"] = s.h2d_bytes;
  d["d2h_bytes"] = s.d2h_bytes;
  d["h2d_throttled"] = Seconds(s.h2d_throttled_ns);
  d["d2h_throttled"] = Seconds(s.d2h_throttled_ns);
  return Call(py::module_::import("gpushare.snapshot").attr("VirtualDeviceStats"), py::tuple(), d);
}

void BindSnapshot(py::module_& m) {
  // Returns (time in seconds, the stats of each virtual device), from which gpushare.Snapshot is made.
  m.def("_snapshot", [](const py::object& runtime) {
    const auto of = Given<Runtime>(runtime, "runtime", "gpushare.Runtime");
    const auto use = of->handle.Use();
    int64_t now = 0;
    Check(gpushare_runtime_now(use->get(), &now));
    const std::vector<gpushare_vdev_stats> all = Take(use->get());
    py::list devices;
    for (const gpushare_vdev_stats& stats : all) devices.append(ToPython(stats));
    return py::make_tuple(Seconds(all.empty() ? now : all.front().time_ns), py::tuple(devices));
  });
}

}  // namespace gpushare::python
