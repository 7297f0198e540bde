// SPDX-License-Identifier: Apache-2.0
#include "device/process/scheduler.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/range.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

// The value that a caller gave for one option; none if the option keeps its default.
template <typename T>
struct Given {
  const char* name;
  T value;
  bool zero;  // 0 is meant as a value
  bool absent() const { return value == 0 && !zero; }
};

absl::Status SetTime(const Given<int64_t>& given, Nanos most, Nanos* to) {
  if (given.absent()) return absl::OkStatus();
  if (given.value < 1000 || Nanos(given.value) > most) {
    return absl::InvalidArgumentError(absl::StrCat("scheduler option '", given.name,
                                                   "': ", given.value, "ns given, 1us to ",
                                                   spec::FormatDuration(most), " allowed"));
  }
  *to = Nanos(given.value);
  return absl::OkStatus();
}

absl::Status SetCount(const Given<int32_t>& given, int* to) {
  if (given.absent()) return absl::OkStatus();
  if (given.value < 1 || given.value > 1024) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scheduler option '", given.name, "': ", given.value, " given, 1 to 1024 allowed"));
  }
  *to = given.value;
  return absl::OkStatus();
}

absl::Status SetPart(const Given<double>& given, double most, double* to) {
  if (given.absent()) return absl::OkStatus();
  if (!Within(given.value, 0, most)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scheduler option '", given.name, "': ", given.value, " given, 0 to ", most, " allowed"));
  }
  *to = given.value;
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyScheduler(const gpushare_scheduler_options& o, gate::EngineOptions* engine) {
  sched::ArbiterOptions& arbiter = engine->arbiter;
  constexpr uint32_t kAll = (GPUSHARE_SCHEDULER_HIGH_BAND_WINDOW << 1) - 1;
  if ((o.zero & ~kAll) != 0) {
    return absl::InvalidArgumentError(
        "scheduler options: 'zero' holds bits that this library does not know");
  }
  const auto zero = [&o](uint32_t bit) { return (o.zero & bit) != 0; };
  for (const absl::Status& status : {
           SetTime({"window", o.window_ns, zero(GPUSHARE_SCHEDULER_WINDOW)}, Seconds(1),
                   &arbiter.window),
           SetTime({"grant", o.grant_ns, zero(GPUSHARE_SCHEDULER_GRANT)}, Millis(100),
                   &arbiter.grant),
           SetTime({"anticipation", o.anticipation_ns, zero(GPUSHARE_SCHEDULER_ANTICIPATION)},
                   Millis(10), &arbiter.anticipation),
           SetTime({"spin", o.spin_ns, zero(GPUSHARE_SCHEDULER_SPIN)}, Millis(100), &engine->spin),
           SetTime({"high_grace", o.high_grace_ns, zero(GPUSHARE_SCHEDULER_HIGH_GRACE)},
                   Millis(100), &arbiter.high_grace),
           SetTime({"high_band_window", o.high_band_window_ns,
                    zero(GPUSHARE_SCHEDULER_HIGH_BAND_WINDOW)},
                   Seconds(1), &arbiter.high_band_window),
           SetCount({"min_commands", o.min_commands, zero(GPUSHARE_SCHEDULER_MIN_COMMANDS)},
                    &arbiter.min_commands),
           SetCount({"high_band_min_commands", o.high_band_min_commands,
                     zero(GPUSHARE_SCHEDULER_HIGH_BAND_MIN_COMMANDS)},
                    &arbiter.high_band_min_commands),
           SetPart({"idle_budget", o.idle_budget, zero(GPUSHARE_SCHEDULER_IDLE_BUDGET)}, 0.5,
                   &arbiter.idle_budget),
           SetPart({"low_band_floor", o.low_band_floor, zero(GPUSHARE_SCHEDULER_LOW_BAND_FLOOR)},
                   0.9, &arbiter.low_band_floor),
       }) {
    if (!status.ok()) return status;
  }
  if (arbiter.idle_budget == 0) arbiter.idle_budget_depth = Nanos(0);  // no initial budget either
  return absl::OkStatus();
}

gpushare_scheduler_options SchedulerInForce(const gate::EngineOptions& engine) {
  const sched::ArbiterOptions& arbiter = engine.arbiter;
  gpushare_scheduler_options o = {};
  o.struct_size = sizeof(o);
  o.window_ns = arbiter.window.count();
  o.grant_ns = arbiter.grant.count();
  o.anticipation_ns = arbiter.anticipation.count();
  o.spin_ns = engine.spin.count();
  o.high_grace_ns = arbiter.high_grace.count();
  o.high_band_window_ns = arbiter.high_band_window.count();
  o.min_commands = arbiter.min_commands;
  o.high_band_min_commands = arbiter.high_band_min_commands;
  o.idle_budget = arbiter.idle_budget;
  o.low_band_floor = arbiter.low_band_floor;
  if (o.idle_budget == 0) o.zero |= GPUSHARE_SCHEDULER_IDLE_BUDGET;
  if (o.low_band_floor == 0) o.zero |= GPUSHARE_SCHEDULER_LOW_BAND_FLOOR;
  return o;
}

bool SameScheduler(const gpushare_scheduler_options& a, const gpushare_scheduler_options& b) {
  return a.window_ns == b.window_ns && a.grant_ns == b.grant_ns &&
         a.anticipation_ns == b.anticipation_ns && a.spin_ns == b.spin_ns &&
         a.high_grace_ns == b.high_grace_ns && a.high_band_window_ns == b.high_band_window_ns &&
         a.min_commands == b.min_commands && a.high_band_min_commands == b.high_band_min_commands &&
         a.idle_budget == b.idle_budget && a.low_band_floor == b.low_band_floor;
}

}  // namespace gpushare::device
