// SPDX-License-Identifier: Apache-2.0
// All counters of all virtual devices. The counters of one device are consistent; devices are read one after the other,
// some microseconds apart.
//
//   absl::StatusOr<Snapshot> before = Snapshot::Take(*runtime);
//   ...
//   absl::StatusOr<Snapshot> after = Snapshot::Take(*runtime);
//   for (const VirtualDeviceStats& device : after->devices) {
//     std::cout << device.tenant << " was held " << device.throttled << "\n";
//   }
//
// Counters only grow, so the difference of two snapshots tells what happened between them. The three times of `compute`
// grow too, except for corrections of predictions that were too long. Limits, `memory.limit`, `used` and `allocations`
// are current values; `memory.peak` and the quantiles cover the device's whole life. Plain values.
#ifndef GPUSHARE_SNAPSHOT_H_
#define GPUSHARE_SNAPSHOT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/handle.h"
#include "gpushare/runtime.h"
#include "gpushare/spec.h"
#include "gpushare/units.h"

namespace gpushare {

struct VirtualDeviceStats {
  std::string tenant;
  std::string
      parent;   // the tenant's parent; empty: none. A parent's memory includes that of its children
  int gpu = 0;  // ordinal
  absl::Duration time;  // when the counters were read, on the runtime's clock
  bool suspended = false;
  Priority priority = Priority::kNormal;  // limits in force
  double weight = 1;
  Share guarantee, cap;

  struct {
    Bytes limit, used, peak;
    uint64_t denied =
        0;  // times that the quota had no room, even if a wait or a reclaim then made room
    Bytes denied_bytes;
    uint64_t allocations = 0;  // live allocations
    Bytes borrowed;            // held beyond what the spec guarantees
    Bytes lent;                // the part of what the spec guarantees that is lent to others
    Bytes swapped;             // host memory that holds swapped-out memory: not in `used`
  } memory;

  // Of swappable memory, by VirtualDevice::Suspend() and Resume(); the bytes are in `d2h` and `h2d` too.
  struct {
    uint64_t out = 0, in = 0;  // how often something moved
    Bytes out_bytes, in_bytes;
    absl::Duration time;  // of the host, that this took
  } swaps;

  struct {
    // Kernels, graphs, memsets and device-to-device copies that were handed to the device, except those under a lease.
    uint64_t launches = 0;
    uint64_t graph_launches = 0;
    absl::Duration predicted;  // device time of the settled work, as predicted
    absl::Duration measured;   // the same work, as measured
    absl::Duration charged;    // in total, corrected by measurement
    uint64_t markers = 0;      // timing events recorded
    // Markers that the driver refused: their work is charged as predicted and not measured.
    uint64_t markers_failed = 0;
    std::string driver_error;  // the latest refusal of a marker, with the call's name; empty: none
  } compute;

  uint64_t waits = 0;        // launches that were held
  absl::Duration throttled;  // host time that they were held
  absl::Duration wait_p50, wait_p99;
  std::array<uint64_t, GPUSHARE_WAIT_BUCKETS> wait_histogram{};  // [2^i, 2^(i+1)) us
  // Launches let through because other work might be waiting for them.
  uint64_t held_past_bound = 0;

  struct Copies {
    Bytes bytes;
    absl::Duration throttled;
  };
  Copies h2d, d2h;
};

namespace internal {
inline VirtualDeviceStats FromC(const gpushare_vdev_stats& c) {
  VirtualDeviceStats s;
  s.tenant = c.tenant;
  s.parent = c.parent;
  s.gpu = c.gpu;
  s.time = absl::Nanoseconds(c.time_ns);
  s.suspended = c.suspended != 0;
  s.priority = static_cast<Priority>(c.priority);
  s.weight = c.weight;
  s.guarantee = Share::Fraction(c.guarantee);
  s.cap = Share::Fraction(c.cap);
  s.memory.limit = Bytes(c.memory_limit);
  s.memory.used = Bytes(c.memory_used);
  s.memory.peak = Bytes(c.memory_peak);
  s.memory.denied = c.memory_denied;
  s.memory.denied_bytes = Bytes(c.memory_denied_bytes);
  s.memory.allocations = c.allocations;
  s.memory.borrowed = Bytes(c.memory_borrowed);
  s.memory.lent = Bytes(c.memory_lent);
  s.memory.swapped = Bytes(c.memory_swapped);
  s.swaps.out = c.swaps_out;
  s.swaps.in = c.swaps_in;
  s.swaps.out_bytes = Bytes(c.swapped_out_bytes);
  s.swaps.in_bytes = Bytes(c.swapped_in_bytes);
  s.swaps.time = absl::Nanoseconds(c.swap_ns);
  s.compute.launches = c.launches;
  s.compute.graph_launches = c.graph_launches;
  s.compute.predicted = absl::Nanoseconds(c.predicted_ns);
  s.compute.measured = absl::Nanoseconds(c.measured_ns);
  s.compute.charged = absl::Nanoseconds(c.charged_ns);
  s.compute.markers = c.markers;
  s.compute.markers_failed = c.markers_failed;
  s.compute.driver_error = c.driver_error;
  s.waits = c.waits;
  s.throttled = absl::Nanoseconds(c.throttled_ns);
  s.wait_p50 = absl::Nanoseconds(c.wait_p50_ns);
  s.wait_p99 = absl::Nanoseconds(c.wait_p99_ns);
  for (size_t i = 0; i < GPUSHARE_WAIT_BUCKETS; ++i) s.wait_histogram[i] = c.wait_histogram[i];
  s.held_past_bound = c.held_past_bound;
  s.h2d = {Bytes(c.h2d_bytes), absl::Nanoseconds(c.h2d_throttled_ns)};
  s.d2h = {Bytes(c.d2h_bytes), absl::Nanoseconds(c.d2h_throttled_ns)};
  return s;
}
}  // namespace internal

struct Snapshot {
  absl::Duration time;
  std::vector<VirtualDeviceStats> devices;  // by GPU, then in order of creation

  static absl::StatusOr<Snapshot> Take(const Runtime& runtime) {
    gpushare_snapshot handle = nullptr;
    gpushare_status code = gpushare_snapshot_take(runtime.handle(), &handle);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    const internal::Handle<gpushare_snapshot, gpushare_snapshot_destroy> owner(handle);
    Snapshot snapshot;
    snapshot.time = runtime.Now();
    size_t count = 0;
    code = gpushare_snapshot_size(handle, &count);
    for (size_t i = 0; code == GPUSHARE_OK && i < count; ++i) {
      gpushare_vdev_stats c = {};
      c.struct_size = sizeof(c);
      code = gpushare_snapshot_get(handle, i, &c);
      if (code == GPUSHARE_OK) snapshot.devices.push_back(internal::FromC(c));
    }
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    if (count > 0) snapshot.time = snapshot.devices.front().time;
    return snapshot;
  }

  // Null: the tenant has no device on that GPU.
  const VirtualDeviceStats* Find(const std::string& tenant, int gpu = 0) const {
    for (const VirtualDeviceStats& device : devices) {
      if (device.gpu == gpu && device.tenant == tenant) return &device;
    }
    return nullptr;
  }
};

}  // namespace gpushare

#endif  // GPUSHARE_SNAPSHOT_H_
