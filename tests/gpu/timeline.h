// SPDX-License-Identifier: Apache-2.0
// Which tenant used the device when: the device time of each tenant, accumulated over a grid of times.
//
//   Timeline timeline = TimelineOf(runs, tenants, absl::Milliseconds(10), absl::Microseconds(10));
//   double share = timeline.Share(0, absl::Seconds(1), absl::Seconds(1));   // of the second second
//
// Pure values. Windows are cut to the time line.
#ifndef GPUSHARE_TESTS_GPU_TIMELINE_H_
#define GPUSHARE_TESTS_GPU_TIMELINE_H_

#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace gpushare::gpu_test {

struct Timeline {
  absl::Duration step;
  std::vector<std::vector<double>> used_ns;  // by tenant, then by moment: 0, step, 2 step, ...

  absl::Duration length() const;
  // Device time of the tenant in [from, from + length).
  absl::Duration Used(size_t tenant, absl::Duration from, absl::Duration length) const;
  // Relative to what all tenants used in that window.
  double Share(size_t tenant, absl::Duration from, absl::Duration length) const;
  // Relative to the length of the window.
  double OfDevice(size_t tenant, absl::Duration from, absl::Duration length) const;

  // Over all windows of one second that slide by a step, after the first `skip`: the worst error of the share, the
  // most and least of the device, and the number of such windows.
  double WorstShareError(size_t tenant, double want, absl::Duration skip) const;
  double MostOfDevice(size_t tenant, absl::Duration skip) const;
  double LeastOfDevice(size_t tenant, absl::Duration skip) const;
  int Windows(absl::Duration skip) const;
};
inline constexpr absl::Duration kWindow = absl::Seconds(1);

// One run of a kernel that fills the device, in nanoseconds of any one clock.
struct KernelRun {
  size_t tenant;
  double start, end;
};

// The time line of `runs` from the first start to the earliest last end of a tenant, so while all have work. Runs
// that overlap divide the time equally. A pause without any run of up to `overhead` before a run is part of its
// launch and counts as its time.
Timeline TimelineOf(std::vector<KernelRun> runs, size_t tenants, absl::Duration step,
                    absl::Duration overhead);

}  // namespace gpushare::gpu_test

#endif  // GPUSHARE_TESTS_GPU_TIMELINE_H_
