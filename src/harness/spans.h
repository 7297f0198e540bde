// SPDX-License-Identifier: Apache-2.0
// Computes the tenants' device time from the stamps that kernels write when they run (workload/spin.h): the device's own account,
// independent of any limiter. It covers all processes of a run, since concurrent kernels divide the time among them.
//
//   const std::vector<std::vector<int64_t>> used = UsedOf(tenants, {.length = Seconds(4), .step = Millis(10), .sms = 132});
#ifndef GPUSHARE_HARNESS_SPANS_H_
#define GPUSHARE_HARNESS_SPANS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"

namespace gpushare::harness {

// One kernel, or a part of one, in ns since the run's start.
struct KernelSpan {
  int64_t first = 0, last = 0;  // begin of its first block, end of its last one
  int64_t ran = 0;              // sum over its blocks of the time that they held their SMs
  int64_t cycles = 0;           // the same in SM clock cycles; 0: unknown
  int64_t work = 0;             // its duration on an otherwise idle device
  bool operator==(const KernelSpan&) const = default;
};
using KernelSpans = std::vector<KernelSpan>;

// An interval in which another process had the device, in ns since the run's start.
struct Away {
  int64_t from = 0, until = 0;
};
// Cuts each kernel into the parts in which its process had the device. `ran` and `work` are divided in proportion to their
// lengths.
void CutAway(std::vector<Away> away, KernelSpans* kernels);

struct SpanGrid {
  Nanos length{0}, step{0};
  int sms = 1;
  // Report SM time as a part of all SMs. Otherwise report device time, which concurrent kernels divide in proportion to the SMs
  // that they hold.
  bool sm_time = false;
};

// An idle time of at most this length before a kernel counts as that kernel's: the device was about to start it.
inline constexpr Nanos kStartingPause = Micros(2);

// For each tenant, its device time from the start until each moment of the grid, in ns. A kernel counts as holding its average
// number of SMs throughout.
std::vector<std::vector<int64_t>> UsedOf(const std::vector<KernelSpans>& tenants,
                                         const SpanGrid& grid);

// Likewise for the work of their kernels, taken to be done evenly while they ran.
std::vector<std::vector<int64_t>> WorkDone(const std::vector<KernelSpans>& tenants,
                                           const SpanGrid& grid);

// The clock of the SMs while kernels held them, in MHz; 0 if unknown.
double SmMhz(const std::vector<KernelSpans>& tenants);

// Writes the file by which a run's program hands its tenants' spans to the harness.
absl::Status WriteSpans(const std::string& path, const std::vector<KernelSpans>& tenants);
// Internal: the file is incomplete.
absl::StatusOr<std::vector<KernelSpans>> ReadSpans(const std::string& path);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_SPANS_H_
