// SPDX-License-Identifier: Apache-2.0
// How the launches of one GPU's tenants are arbitrated.
//
//   SchedulerOptions options = SchedulerOptions::Throughput();
//   options.idle_budget = 0;   // never idle on purpose
//   absl::StatusOr<Gpu> gpu = Gpu::Open(*runtime, "0", options);
//   std::cout << *gpu->scheduler()->window << "\n";   // the value in force
//
// The specs of the virtual devices (spec.h) say who gets how much; these options say how it is enforced. They
// take effect at the first opening of a GPU in a runtime. Errors: InvalidArgument names the option and its range.
#ifndef GPUSHARE_SCHEDULER_H_
#define GPUSHARE_SCHEDULER_H_

#include <cstdint>
#include <optional>
#include <type_traits>

#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"

namespace gpushare {

// Options that are not given keep their defaults (docs/tuning.md).
struct SchedulerOptions {
  // Device time that may be outstanding. Default: 240 us.
  std::optional<absl::Duration> window = std::nullopt;
  // Number of commands that may always be outstanding. Default: 2.
  std::optional<int> min_commands = std::nullopt;
  // Longest grant while tenants contend. Default: 50 us.
  std::optional<absl::Duration> grant = std::nullopt;
  // How long the arbiter waits for a tenant's next launch. Default: 15 us.
  std::optional<absl::Duration> anticipation = std::nullopt;
  // How long a held thread spins on its processor. Default: 200 us.
  std::optional<absl::Duration> spin = std::nullopt;
  // Part of the time that the device may be left idle on purpose. Default: 0.015.
  std::optional<double> idle_budget = std::nullopt;
  // Part of the device that is kept for bands while a higher one closes them. Default: 0.
  std::optional<double> low_band_floor = std::nullopt;
  // How long lower bands stay closed after work of a higher one. Default: 30 us.
  std::optional<absl::Duration> high_grace = std::nullopt;
  // `window` and `min_commands` while a high-priority tenant is on the GPU. Defaults: 80 us and 1.
  std::optional<absl::Duration> high_band_window = std::nullopt;
  std::optional<int> high_band_min_commands = std::nullopt;

  // More commands in flight: less sensitive to delays of the host, but coarser shares.
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
  const auto set = [&c](const auto& given, auto* field, uint32_t bit) {
    if (!given.has_value()) return;
    if constexpr (std::is_same_v<std::decay_t<decltype(*given)>, absl::Duration>) {
      *field = absl::ToInt64Nanoseconds(*given);
    } else {
      *field = *given;
    }
    if (*field == 0) c.zero |= bit;
  };
  set(s.window, &c.window_ns, GPUSHARE_SCHEDULER_WINDOW);
  set(s.min_commands, &c.min_commands, GPUSHARE_SCHEDULER_MIN_COMMANDS);
  set(s.grant, &c.grant_ns, GPUSHARE_SCHEDULER_GRANT);
  set(s.anticipation, &c.anticipation_ns, GPUSHARE_SCHEDULER_ANTICIPATION);
  set(s.spin, &c.spin_ns, GPUSHARE_SCHEDULER_SPIN);
  set(s.idle_budget, &c.idle_budget, GPUSHARE_SCHEDULER_IDLE_BUDGET);
  set(s.low_band_floor, &c.low_band_floor, GPUSHARE_SCHEDULER_LOW_BAND_FLOOR);
  set(s.high_grace, &c.high_grace_ns, GPUSHARE_SCHEDULER_HIGH_GRACE);
  set(s.high_band_window, &c.high_band_window_ns, GPUSHARE_SCHEDULER_HIGH_BAND_WINDOW);
  set(s.high_band_min_commands, &c.high_band_min_commands,
      GPUSHARE_SCHEDULER_HIGH_BAND_MIN_COMMANDS);
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
