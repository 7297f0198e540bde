// SPDX-License-Identifier: Apache-2.0
#include "bench/share_accuracy/figures.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/status_macros.h"
#include "workload/models.h"

namespace gpushare::bench {

Settings settings;

namespace {

absl::StatusOr<CaseResult> Play(driver::Driver& driver, CaseSpec spec) {
  spec.engine = settings.engine;
  absl::StatusOr<CaseResult> result = Run(driver, spec);
  if (!result.ok() || !settings.verbose) return result;
  const size_t first = static_cast<size_t>(spec.warm_up / kSampleSeconds);
  for (size_t i = 0; i < spec.tenants.size(); ++i) {
    const TenantResult& t = result->tenants[i];
    std::printf(
        "  %-28s used %.4f s (%.4f after warm-up), measured %.4f s, predicted %.4f s, "
        "launches %llu, markers %llu, waits %llu, throttled %.3f s\n",
        spec.tenants[i].name.c_str(), t.used_ns.back() * 1e-9,
        (t.used_ns.back() - t.used_ns[first]) * 1e-9,
        static_cast<double>(t.stats.measured.count()) * 1e-9,
        static_cast<double>(t.stats.predicted.count()) * 1e-9,
        static_cast<unsigned long long>(t.stats.launches),
        static_cast<unsigned long long>(t.stats.markers),
        static_cast<unsigned long long>(t.stats.waits),
        static_cast<double>(t.stats.throttled.count()) * 1e-9);
  }
  for (size_t k = first; settings.windows > 0 && k + settings.windows < result->busy_ns.size();
       k += settings.windows) {
    std::printf("  at %.2f s:", static_cast<double>(k) * kSampleSeconds);
    double total = 0;
    for (const TenantResult& t : result->tenants)
      total += t.used_ns[k + settings.windows] - t.used_ns[k];
    for (const TenantResult& t : result->tenants) {
      std::printf(" %6.2f",
                  100 * (t.used_ns[k + settings.windows] - t.used_ns[k]) / std::max(total, 1.0));
      if (t.measured_ns.empty()) continue;
      std::printf(" (meter off by %+6.0f us, virtual time %.0f us)",
                  1e-3 * (t.measured_ns[k + settings.windows] - t.measured_ns[k] -
                          (t.used_ns[k + settings.windows] - t.used_ns[k])),
                  1e-3 * t.virtual_time_ns[k + settings.windows]);
    }
    std::printf("\n");
  }
  std::printf("  real time %.2f s\n", result->wall_seconds);
  return result;
}

std::vector<double> Wanted(const CaseSpec& spec) {
  double sum = 0;
  for (const TenantSpec& t : spec.tenants) sum += t.options.limits.weight;
  std::vector<double> want;
  for (const TenantSpec& t : spec.tenants) want.push_back(t.options.limits.weight / sum);
  return want;
}

// Device time of the longest thing that cannot be interrupted.
double LongestSeconds(const TenantSpec& tenant) {
  const workload::TraceSummary summary = workload::Summarize(*tenant.trace);
  return 1e-9 * static_cast<double>((tenant.mode == Mode::kGraph || tenant.mode == Mode::kMixed
                                         ? summary.total
                                         : summary.longest)
                                        .count());
}

}  // namespace

Case Shares(std::string name, CaseSpec spec, SharesBars bars) {
  return {std::move(name), [=](driver::Driver& driver) -> absl::StatusOr<std::vector<Row>> {
            absl::StatusOr<CaseResult> result = Play(driver, spec);
            if (!result.ok()) return result.status();
            const std::vector<double> want = Wanted(spec);
            std::vector<Row> rows;
            rows.push_back({"share error, 1 s windows, pp", WorstError(spec, *result, want, 1.0),
                            bars.error_1s});
            rows.push_back({"share error, 100 ms windows, pp", WorstError(spec, *result, want, 0.1),
                            bars.error_100ms});
            CaseSpec free = spec;
            free.gated = false;
            absl::StatusOr<CaseResult> ungated = Play(driver, free);
            if (!ungated.ok()) return ungated.status();
            rows.push_back({"device busy, % of ungated",
                            100 * BusyRatio(spec, *result) / BusyRatio(free, *ungated), bars.busy,
                            true});
            if (bars.work > 0) {
              rows.push_back({"work done, % of ungated",
                              100 * WorkPerSecond(spec, *result) / WorkPerSecond(free, *ungated),
                              bars.work, true});
            }
            return rows;
          }};
}

Case Cap(std::string name, TenantSpec tenant, bool launch_bound) {
  return {std::move(name), [=](driver::Driver& driver) -> absl::StatusOr<std::vector<Row>> {
            std::vector<Row> rows;
            const double bar = 0.5 + 100 * LongestSeconds(tenant);
            for (double cap : {0.1, 0.3, 0.5, 0.8}) {
              if (tenant.mode == Mode::kSlowHost && cap > 0.5) continue;  // it wants 58 %
              CaseSpec spec;
              spec.seconds = settings.seconds;
              spec.seed = settings.seed;
              spec.tenants = {tenant};
              spec.tenants[0].options.limits.cap = cap;
              absl::StatusOr<CaseResult> result = Play(driver, spec);
              if (!result.ok()) return result.status();
              const CapError error = WorstCapError(spec, *result, 0, cap, 1.0);
              const std::string at =
                  "cap " + std::to_string(static_cast<int>(cap * 100 + 0.5)) + " %, ";
              rows.push_back({at + "over, pp", error.over, bar});
              rows.push_back({at + "under, pp", error.under, bar + (launch_bound ? 1 : 0)});
            }
            return rows;
          }};
}

Case Online(std::string name, Trace service, Trace training, double load, bool overlap,
            Mode training_mode) {
  return {
      std::move(name), [=](driver::Driver& driver) -> absl::StatusOr<std::vector<Row>> {
        CaseSpec spec;
        spec.seconds = 2 + 2 * settings.seconds;
        spec.seed = settings.seed;
        spec.overlap = overlap;
        TenantSpec online;
        online.name = "online";
        online.trace = service;
        online.mode = Mode::kOpenLoop;
        online.load = load;
        online.high_priority_stream = true;
        online.options.limits.band = sched::Band::kHigh;
        spec.tenants = {online};
        absl::StatusOr<CaseResult> alone = Play(driver, spec);
        if (!alone.ok()) return alone.status();
        TenantSpec batch;
        batch.name = "batch";
        batch.trace = training;
        batch.mode = training_mode;
        batch.options.limits.band = sched::Band::kLow;
        spec.tenants.push_back(batch);
        absl::StatusOr<CaseResult> shared = Play(driver, spec);
        if (!shared.ok()) return shared.status();
        const double longest = 1e9 * LongestSeconds(batch);
        const double p99_alone = Quantile(alone->tenants[0].latency_ns, 0.99);
        const double p99 = Quantile(shared->tenants[0].latency_ns, 0.99);
        const size_t first = static_cast<size_t>(spec.warm_up / kSampleSeconds);
        const size_t last = alone->busy_ns.size() - 1;
        const double window = static_cast<double>(last - first) * kSampleSeconds * 1e9;
        const double left = window - (alone->busy_ns[last] - alone->busy_ns[first]);
        const auto& work = shared->tenants[1].work_ns;
        return std::vector<Row>{
            {"p99 shared / (1.05 x alone + one residual command)",
             p99 / (1.05 * p99_alone + longest), 1.0},
            {"p99 shared / alone (n=" + std::to_string(alone->tenants[0].latency_ns.size()) + ")",
             p99 / p99_alone, 0},
            {"best effort, % of the time left over", 100 * (work[last] - work[first]) / left, 95,
             true}};
      }};
}

Case Mispredicted(std::string name, CaseSpec spec, double first, double others) {
  return {std::move(name), [=](driver::Driver& driver) -> absl::StatusOr<std::vector<Row>> {
            CaseSpec changed = spec;
            changed.seconds = 8;
            for (TenantSpec& tenant : changed.tenants) tenant.prediction_bias = others;
            changed.tenants[0].prediction_bias = first;
            absl::StatusOr<CaseResult> result = Play(driver, changed);
            if (!result.ok()) return result.status();
            CaseSpec after = changed;
            after.warm_up = 5;
            return std::vector<Row>{{"share error through the change, pp",
                                     WorstError(changed, *result, Wanted(spec), 1.0), 2.5},
                                    {"share error from 1 s after it, pp",
                                     WorstError(after, *result, Wanted(spec), 1.0), 1}};
          }};
}

Case LongCommands(std::string name, CaseSpec spec, double longest_s) {
  return {
      std::move(name), [=](driver::Driver& driver) -> absl::StatusOr<std::vector<Row>> {
        absl::StatusOr<CaseResult> result = Play(driver, spec);
        if (!result.ok()) return result.status();
        std::vector<Row> rows;
        for (double window : {0.1, 0.5, 1.0}) {
          // An error of the whole window says nothing, so that such a row has no bar.
          const double bar = 100 * longest_s / window;
          rows.push_back({"share error, " + std::to_string(static_cast<int>(window * 1e3 + 0.5)) +
                              " ms windows, pp",
                          WorstError(spec, *result, Wanted(spec), window), bar < 100 ? bar : 0});
        }
        return rows;
      }};
}

namespace {

// As src/cli/demo/scenario.cc has them, without the pause of the first training job.
absl::StatusOr<CaseSpec> DemoTenants() {
  using workload::Pass;
  GPUSHARE_ASSIGN_OR_RETURN(const workload::GpuRates rates, workload::RatesOf("h200"));
  GPUSHARE_ASSIGN_OR_RETURN(workload::ModelTrace service, workload::Resnet50({.batch = 8}, rates));
  GPUSHARE_ASSIGN_OR_RETURN(workload::ModelTrace vision,
                            workload::Resnet50({.pass = Pass::kTraining, .batch = 64}, rates));
  GPUSHARE_ASSIGN_OR_RETURN(workload::ModelTrace language,
                            workload::BertBase({.pass = Pass::kTraining, .batch = 32}, rates));
  GPUSHARE_ASSIGN_OR_RETURN(workload::ModelTrace batch,
                            workload::GptPrefill({.batch = 8}, 1024, rates));
  CaseSpec spec;
  spec.device = "noise=0";
  spec.overlap = true;
  spec.sms = rates.sms;
  spec.seconds = settings.seconds;
  spec.seed = settings.seed;
  const auto add = [&spec](const char* name, workload::ModelTrace& model, Mode mode) -> auto& {
    TenantSpec tenant;
    tenant.name = name;
    tenant.trace = std::make_shared<workload::KernelTrace>(std::move(model.trace));
    tenant.mode = mode;
    spec.tenants.push_back(std::move(tenant));
    return spec.tenants.back();
  };
  TenantSpec& online = add("online", service, Mode::kOpenLoop);
  online.load = 0.1;
  online.high_priority_stream = true;
  online.options.limits.band = sched::Band::kHigh;
  add("train-a", vision, Mode::kSyncOnly).options.limits.guarantee = 0.5;
  add("train-b", language, Mode::kSyncOnly).options.limits.guarantee = 0.3;
  add("batch", batch, Mode::kBacklog);
  return spec;
}

}  // namespace

Case Demonstration(std::string name) {
  return {std::move(name), [=](driver::Driver& driver) -> absl::StatusOr<std::vector<Row>> {
            GPUSHARE_ASSIGN_OR_RETURN(const CaseSpec spec, DemoTenants());
            absl::StatusOr<CaseResult> result = Play(driver, spec);
            if (!result.ok()) return result.status();
            std::vector<Row> rows;
            for (size_t i = 0; i < spec.tenants.size(); ++i) {
              const double guarantee = spec.tenants[i].options.limits.guarantee;
              rows.push_back({"meter off the truth, " + spec.tenants[i].name + ", 1 s windows, pp",
                              WorstMeterError(spec, *result, i, 1.0), 2.5});
              if (guarantee == 0) continue;
              rows.push_back({"short of its guarantee, " + spec.tenants[i].name + ", pp",
                              WorstCapError(spec, *result, i, guarantee, 1.0).under, 1.5});
            }
            CaseSpec free = spec;
            free.gated = false;
            absl::StatusOr<CaseResult> ungated = Play(driver, free);
            if (!ungated.ok()) return ungated.status();
            rows.push_back({"device busy, % of ungated",
                            100 * BusyRatio(spec, *result) / BusyRatio(free, *ungated), 98, true});
            rows.push_back({"work done, % of ungated",
                            100 * WorkPerSecond(spec, *result) / WorkPerSecond(free, *ungated), 85,
                            true});
            return rows;
          }};
}

}  // namespace gpushare::bench
