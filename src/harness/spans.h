// SPDX-License-Identifier: Apache-2.0
// What tenants had of a device whose kernels said when they ran (workload/spin.h), which is who had it by the device's own
// account: of all of a run's processes together, since of kernels at one time each has its part.
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
  int64_t first = 0, last = 0;  // its first block's begin, its last one's end
  int64_t ran = 0;              // how long its blocks held their SMs, together
  int64_t cycles = 0;           // the same in cycles of these; 0: nobody knows
  int64_t work = 0;             // how long it takes with the device to itself
  bool operator==(const KernelSpan&) const = default;
};
using KernelSpans = std::vector<KernelSpan>;

// When the device was another process's, in the same ns.
struct Away {
  int64_t from = 0, until = 0;
};
// Each kernel in parts, which are those when its process had the device. Of what its blocks ran, and of its work, a part has as
// much as it is long.
void CutAway(std::vector<Away> away, KernelSpans* kernels);

struct SpanGrid {
  Nanos length{0}, step{0};
  int sms = 1;
  // What is told is the time of SMs that they held, of all SMs; else the device's time, of which those that run at one time
  // have parts by the SMs that they hold.
  bool sm_time = false;
};

// A pause before a kernel in which nothing ran, and that is no longer than this, is of that kernel's tenant: the device was
// about to start it.
inline constexpr Nanos kStartingPause = Micros(2);

// By tenant, what it had from the start until each moment of the grid, in ns. A kernel holds as many SMs as it did on average.
std::vector<std::vector<int64_t>> UsedOf(const std::vector<KernelSpans>& tenants,
                                         const SpanGrid& grid);

// The same of the work of their kernels, which counts as evenly done while they ran.
std::vector<std::vector<int64_t>> WorkDone(const std::vector<KernelSpans>& tenants,
                                           const SpanGrid& grid);

// The clock of the SMs while kernels held them, in MHz; 0: nobody knows.
double SmMhz(const std::vector<KernelSpans>& tenants);

// Between a run's program and the harness: a file, by tenant.
absl::Status WriteSpans(const std::string& path, const std::vector<KernelSpans>& tenants);
// Internal: it is not whole.
absl::StatusOr<std::vector<KernelSpans>> ReadSpans(const std::string& path);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_SPANS_H_
