// SPDX-License-Identifier: Apache-2.0
// One GPU, some tenants that replay kernel traces through the engine, and the ground truth.
#ifndef GPUSHARE_BENCH_SHARE_ACCURACY_TESTBED_H_
#define GPUSHARE_BENCH_SHARE_ACCURACY_TESTBED_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "driver/driver.h"
#include "gate/engine.h"
#include "sched/arbiter.h"
#include "workload/trace.h"

namespace gpushare::bench {

enum class Mode {
  kBacklog,   // iterations without end, never synchronises
  kSync,      // synchronises after each iteration, then thinks for 0.3 to 2 ms
  kSyncOnly,  // synchronises after each iteration and goes on
  kSyncEach,  // synchronises after each launch
  kSlowHost,  // launches a kernel when the one before it has long ended, and never synchronises
  kOpenLoop,  // Poisson requests, each one iteration and a synchronise
  kGraph,     // each iteration is one graph launch, backlogged
  kLease,  // each iteration under a lease that is released at once, its launches unseen by the gate
  kLeaseSync,       // the same, synchronised before the release
  kLeaseExclusive,  // the same with an exclusive lease
  // Backlogged, of everything: each fourth iteration is one graph launch, in the others each eighth kernel has
  // a copy from the host, one within the device and a set around it, and each 64th of them a cooperative launch.
  kMixed,
};

struct TenantSpec {
  std::string name;
  std::shared_ptr<const workload::KernelTrace> trace;
  Mode mode = Mode::kBacklog;
  gate::TenantOptions options;
  double load = 0.2;  // kOpenLoop: offered device time ÷ time
  bool high_priority_stream = false;
  bool unseen = false;  // kGraph: nobody saw it instantiated
  bool warmed_up =
      false;  // kGraph: its kernels ran by themselves before, as frameworks do before they capture
  // kGraph: of each `layer` kernels (0: of all), one after the other goes to the next of this many branches, which join behind
  // them.
  int branches = 1, layer = 0;
  double stop_at = -1, return_at = -1;  // seconds: sleeps in between
  double prediction_bias = 1;           // durations change by this factor half way (mispredictions)
};

struct CaseSpec {
  std::string device = "noise=0.03";  // the rest of the simulated GPU's configuration
  bool overlap = false;               // kernels share the device by footprint; else one at a time
  std::vector<TenantSpec> tenants;
  double seconds = 6, warm_up = 2;
  int sms = 80;
  bool gated = true;
  uint64_t seed = 7;
  gate::EngineOptions engine;
};

struct TenantResult {
  std::vector<double> used_ns;  // ground truth, sampled every 10 ms
  std::vector<double> work_ns;
  std::vector<double> measured_ns;      // what the meter says; gated only
  std::vector<double> virtual_time_ns;  // the arbiter's; gated only
  std::vector<double> latency_ns;       // of requests that began after warm-up
  gate::GateStats stats;
};

struct CaseResult {
  std::vector<TenantResult> tenants;
  std::vector<double> busy_ns;  // sampled every 10 ms
  double wall_seconds = 0;      // real time that it took
};

inline constexpr double kSampleSeconds = 0.01;

// Runs the case on the simulated GPU's virtual clock. `driver` is the simulated driver; its state is
// reset before.
absl::StatusOr<CaseResult> Run(driver::Driver& driver, const CaseSpec& spec);

// Largest |share - want| over all windows of `window` seconds after warm-up, in percentage points;
// shares of the time used by all tenants (`of_window` false) or of the window's length (true).
double WorstError(const CaseSpec& spec, const CaseResult& result, const std::vector<double>& want,
                  double window);
struct CapError {
  double over = 0, under = 0;
};
CapError WorstCapError(const CaseSpec& spec, const CaseResult& result, size_t tenant, double cap,
                       double window);
// Largest difference between what the meter says that `tenant` used and what it did, over all windows after
// warm-up, in percentage points of the window.
double WorstMeterError(const CaseSpec& spec, const CaseResult& result, size_t tenant,
                       double window);
double BusyRatio(const CaseSpec& spec, const CaseResult& result);  // of the time after warm-up
double WorkPerSecond(const CaseSpec& spec, const CaseResult& result);
double Quantile(std::vector<double> values, double q);

std::shared_ptr<const workload::KernelTrace> Synthetic(const std::string& name,
                                                       const std::vector<double>& micros,
                                                       int repeat, int sms);

}  // namespace gpushare::bench

#endif  // GPUSHARE_BENCH_SHARE_ACCURACY_TESTBED_H_
