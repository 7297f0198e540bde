// SPDX-License-Identifier: Apache-2.0
// Who used the device when: device time of each tenant, cumulated over a grid of moments.
//
//   Timeline timeline = TimelineOf(runs, tenants, absl::Milliseconds(10), absl::Microseconds(10));
//   double share = timeline.Share(0, absl::Seconds(1), absl::Seconds(1));   // of the second second
//
// Pure values; windows outside the time line are cut to it.
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
  // By what all tenants used in that window.
  double Share(size_t tenant, absl::Duration from, absl::Duration length) const;
  // By the window.
  double OfDevice(size_t tenant, absl::Duration from, absl::Duration length) const;

  // Over all windows of one second, sliding by a step, after the first `skip`: how far the share
  // was off, most and least of the device; and how many such windows there are.
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

// The time line of `runs` from the first start to the earliest last end of a tenant: while all had
// work. Runs that overlap divide the time equally. A pause of up to `overhead` before a run, in
// which nothing runs, is its launch's and counts as its time.
Timeline TimelineOf(std::vector<KernelRun> runs, size_t tenants, absl::Duration step,
                    absl::Duration overhead);

}  // namespace gpushare::gpu_test

#endif  // GPUSHARE_TESTS_GPU_TIMELINE_H_
