// SPDX-License-Identifier: Apache-2.0
// How the launches of one GPU's tenants are arbitrated.
//
//   SchedulerOptions options = SchedulerOptions::Throughput();
//   options.idle_budget = 0.02;
//   absl::StatusOr<Gpu> gpu = Gpu::Open(*runtime, "0", options);
//   std::cout << gpu->scheduler()->window << "\n";   // what is in force
//
// Who gets how much is in the specs of the virtual devices (spec.h); this is about the how. The
// options count at the first opening of a GPU in a runtime. Errors: InvalidArgument names the
// option and its range.
#ifndef GPUSHARE_SCHEDULER_H_
#define GPUSHARE_SCHEDULER_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"

namespace gpushare {

// What is not given keeps its default (docs/tuning.md).
struct SchedulerOptions {
  std::optional<absl::Duration> window;  // device time that may be outstanding; 200 us
  std::optional<int> min_commands;       // commands always let through; 4
  std::optional<absl::Duration> grant;   // longest grant while tenants contend; 50 us
  std::optional<absl::Duration>
      anticipation;                      // how long a tenant's next launch is waited for; 15 us
  std::optional<absl::Duration> spin;    // a held thread stays on its processor so long; 200 us
  std::optional<double> idle_budget;     // part of the time that may be idled on purpose; 0.01
  std::optional<double> low_band_floor;  // part for bands that a higher one closes; 0
  std::optional<absl::Duration>
      high_grace;  // lower bands stay closed after a higher one's work; 30 us
  std::optional<absl::Duration>
      high_band_window;                       // window while a high-priority tenant is there; 50 us
  std::optional<int> high_band_min_commands;  // min_commands while one is there; 1

  // More in flight: less host sensitivity, coarser shares.
  static SchedulerOptions Throughput() {
    SchedulerOptions options;
    options.min_commands = 8;
    return options;
  }

  friend bool operator==(const SchedulerOptions&, const SchedulerOptions&) = default;
};

namespace internal {

inline gpushare_scheduler_options ToC(const SchedulerOptions& s) {
  gpushare_scheduler_options c = {};
  c.struct_size = sizeof(c);
  const auto ns = [](const std::optional<absl::Duration>& d) {
    return d ? absl::ToInt64Nanoseconds(*d) : int64_t{0};
  };
  c.window_ns = ns(s.window);
  c.min_commands = s.min_commands.value_or(0);
  c.grant_ns = ns(s.grant);
  c.anticipation_ns = ns(s.anticipation);
  c.spin_ns = ns(s.spin);
  c.idle_budget = s.idle_budget.value_or(0);
  c.low_band_floor = s.low_band_floor.value_or(0);
  c.high_grace_ns = ns(s.high_grace);
  c.high_band_window_ns = ns(s.high_band_window);
  c.high_band_min_commands = s.high_band_min_commands.value_or(0);
  return c;
}

inline SchedulerOptions FromC(const gpushare_scheduler_options& c) {
  SchedulerOptions s;
  s.window = absl::Nanoseconds(c.window_ns);
  s.min_commands = c.min_commands;
  s.grant = absl::Nanoseconds(c.grant_ns);
  s.anticipation = absl::Nanoseconds(c.anticipation_ns);
  s.spin = absl::Nanoseconds(c.spin_ns);
  s.idle_budget = c.idle_budget;
  s.low_band_floor = c.low_band_floor;
  s.high_grace = absl::Nanoseconds(c.high_grace_ns);
  s.high_band_window = absl::Nanoseconds(c.high_band_window_ns);
  s.high_band_min_commands = c.high_band_min_commands;
  return s;
}

}  // namespace internal
}  // namespace gpushare

#endif  // GPUSHARE_SCHEDULER_H_
