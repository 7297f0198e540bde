// SPDX-License-Identifier: Apache-2.0
#include "device/scheduler.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "device/text.h"

namespace gpushare::device {
namespace {

absl::Status SetTime(const char* name, int64_t ns, Nanos most, Nanos* to) {
  if (ns == 0) return absl::OkStatus();
  if (ns < 1000 || Nanos(ns) > most) {
    return absl::InvalidArgumentError(absl::StrCat("scheduler option '", name, "': ", ns,
                                                   "ns given, 1us to ", FormatDuration(most),
                                                   " allowed"));
  }
  *to = Nanos(ns);
  return absl::OkStatus();
}

absl::Status SetCount(const char* name, int32_t count, int* to) {
  if (count == 0) return absl::OkStatus();
  if (count < 1 || count > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("scheduler option '", name, "': ", count, " given, 1 to 1024 allowed"));
  }
  *to = count;
  return absl::OkStatus();
}

absl::Status SetPart(const char* name, double part, double most, double* to) {
  if (part == 0) return absl::OkStatus();
  if (!(part > 0 && part <= most)) {
    return absl::InvalidArgumentError(absl::StrCat("scheduler option '", name, "': ", part,
                                                   " given, above 0 to ", most, " allowed"));
  }
  *to = part;
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyScheduler(const gpushare_scheduler_options& o, gate::EngineOptions* engine) {
  sched::ArbiterOptions& arbiter = engine->arbiter;
  for (const absl::Status& status : {
           SetTime("window", o.window_ns, Seconds(1), &arbiter.window),
           SetTime("grant", o.grant_ns, Millis(100), &arbiter.grant),
           SetTime("anticipation", o.anticipation_ns, Millis(10), &arbiter.anticipation),
           SetTime("spin", o.spin_ns, Millis(100), &engine->spin),
           SetTime("high_grace", o.high_grace_ns, Millis(100), &arbiter.high_grace),
           SetTime("high_band_window", o.high_band_window_ns, Seconds(1),
                   &arbiter.high_band_window),
           SetCount("min_commands", o.min_commands, &arbiter.min_commands),
           SetCount("high_band_min_commands", o.high_band_min_commands,
                    &arbiter.high_band_min_commands),
           SetPart("idle_budget", o.idle_budget, 0.5, &arbiter.idle_budget),
           SetPart("low_band_floor", o.low_band_floor, 0.9, &arbiter.low_band_floor),
       }) {
    if (!status.ok()) return status;
  }
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
