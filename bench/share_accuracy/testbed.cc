// SPDX-License-Identifier: Apache-2.0
#include "bench/share_accuracy/testbed.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <utility>

#include "base/status_macros.h"
#include "gate/footprint.h"
#include "gate/graph_kernels.h"
#include "gate/lane.h"
#include "tests/support/sim_control.h"
#include "workload/spin.h"

namespace gpushare::bench {
namespace {

using driver::Driver;
using driver::Result;

constexpr size_t kCopied = 16 << 10;

struct Player {
  const TenantSpec& spec;
  const CaseSpec& run;
  Driver& driver;
  driver::Context context;
  const testing::SimControl& sim;
  gate::Gate* gate;
  uint32_t account;
  Time start, end;
  TenantResult& result;
  std::atomic<bool>& stop;
  absl::Status status = absl::OkStatus();

  int priority = 0;
  driver::Stream stream = nullptr;
  gate::StreamGate* stream_gate = nullptr;
  std::vector<driver::Function> functions{};
  driver::GraphExec graph = nullptr;
  float footprint = 1;  // its
  gate::GraphKernels kernels{};
  std::mt19937_64 random{};
  driver::DevicePtr buffer = 0;  // kMixed
  std::vector<char> host{};      // what it copies
  uint64_t iterations = 0, commands = 0;

  base::Clock& clock() { return driver.clock(); }
  bool Done() { return stop.load() || clock().Now() >= end; }

  absl::Status SetUp() {
    random.seed(run.seed * 1000 + account);
    driver.PushContext(context);
    int least = 0, greatest = 0;
    driver.StreamPriorityRange(&least, &greatest);
    priority = spec.high_priority_stream ? greatest : least;
    GPUSHARE_RETURN_IF_ERROR(
        driver::ToStatus(driver.CreateStream(&stream, priority), "CreateStream"));
    sim.set_account(stream, account);
    GPUSHARE_ASSIGN_OR_RETURN(workload::SpinModule code, workload::MakeSpinModule(*spec.trace));
    driver::Module module = nullptr;
    GPUSHARE_RETURN_IF_ERROR(
        driver::ToStatus(driver.LoadModule(&module, code.ptx.c_str()), "LoadModule"));
    for (const std::string& entry : code.entries) {
      driver::Function function = nullptr;
      GPUSHARE_RETURN_IF_ERROR(
          driver::ToStatus(driver.GetFunction(&function, module, entry.c_str()), "GetFunction"));
      functions.push_back(function);
    }
    if (gate != nullptr) {
      // As the SDK does: the greatest is the high band's alone.
      const int levels = spec.high_priority_stream ? 0 : least - greatest - 1;
      GPUSHARE_ASSIGN_OR_RETURN(stream_gate, gate->AddStream(stream, {.levels = levels}));
    }
    if (spec.mode == Mode::kMixed) {
      host.resize(kCopied);
      GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.MemAlloc(&buffer, 2 * kCopied), "MemAlloc"));
    }
    if (spec.warmed_up) {
      constexpr int kTimes = 4;
      for (int i = 0; i < kTimes; ++i) {
        for (const workload::TraceKernel& kernel : spec.trace->kernels()) {
          Submit(kernel, gate != nullptr);
        }
      }
      Synchronize();
    }
    if (spec.mode == Mode::kGraph || spec.mode == Mode::kMixed) {
      driver::Graph captured = nullptr;
      GPUSHARE_RETURN_IF_ERROR(Capture(&captured));
      const driver::GraphContents contents = driver.ContentsOf(captured);
      GPUSHARE_RETURN_IF_ERROR(
          driver::ToStatus(driver.Instantiate(&graph, captured), "Instantiate"));
      std::vector<float> footprints;
      for (const workload::TraceKernel& kernel : spec.trace->kernels()) {
        footprints.push_back(FootprintOf(kernel));
      }
      size_t at = 0;
      const auto in_order = [&](const driver::GraphKernel&) {
        return footprints[at++ % footprints.size()];
      };
      if (run.overlap) footprint = gate::GraphFootprint(contents, in_order);
      if (!spec.unseen) kernels.Put(graph, gate::KernelsOf(contents, in_order));
    }
    return absl::OkStatus();
  }

  absl::Status Capture(driver::Graph* captured) {
    std::vector<driver::Stream> branches(static_cast<size_t>(spec.branches), stream);
    for (size_t i = 1; i < branches.size(); ++i) {
      GPUSHARE_RETURN_IF_ERROR(
          driver::ToStatus(driver.CreateStream(&branches[i], priority), "CreateStream"));
    }
    driver::Event event = nullptr;
    GPUSHARE_RETURN_IF_ERROR(
        driver::ToStatus(driver.CreateEvent(&event, /*timing=*/false), "CreateEvent"));
    GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.BeginCapture(stream), "BeginCapture"));
    const size_t count = spec.trace->kernels().size();
    const size_t layer = spec.layer > 0 ? static_cast<size_t>(spec.layer) : count;
    const auto wait = [&](driver::Stream waiting, driver::Stream before) {
      if (waiting == before) return;
      driver.RecordEvent(event, before);
      driver.StreamWaitEvent(waiting, event);
    };
    const driver::Stream own = stream;
    for (size_t i = 0; i < count; ++i) {
      if (i % layer == 0) {
        for (const driver::Stream branch : branches) wait(branch, own);
      }
      stream = branches[i % layer % branches.size()];
      Submit(spec.trace->kernels()[i], false);
      stream = own;
      if (i % layer == layer - 1 || i == count - 1) {
        for (const driver::Stream branch : branches) wait(own, branch);
      }
    }
    const Result r = driver.EndCapture(stream, captured);
    driver.DestroyEvent(event);
    for (size_t i = 1; i < branches.size(); ++i) driver.DestroyStream(branches[i]);
    return driver::ToStatus(r, "EndCapture");
  }

  // On a serial device every kernel fills it.
  float FootprintOf(const workload::TraceKernel& kernel) const {
    return run.overlap ? static_cast<float>(kernel.sms) / static_cast<float>(run.sms) : 1;
  }

  // Behind the gate, unless there is none.
  template <typename F>
  void Put(const gate::Work& work, F&& call) {
    gate::Admission admission;
    if (gate != nullptr) {
      admission = gate->Admit(*stream_gate, work);
      if (admission.verdict != gate::Verdict::kAdmitted) return;
    }
    const Result r = call();
    if (gate != nullptr) gate->Complete(admission, r == Result::kSuccess);
    if (r != Result::kSuccess && status.ok()) status = driver::ToStatus(r, "a command");
  }

  void Graph() {
    gate::Work work{reinterpret_cast<uintptr_t>(graph), gate::Work::Kind::kGraph, 1.0f};
    if (!spec.unseen) {
      work.parts = static_cast<uint32_t>(spec.trace->kernels().size());
      work.footprint = footprint;
      work.kernels = &kernels;
      work.executable = graph;
    }
    Put(work, [&] { return driver.LaunchGraph(graph, stream); });
  }

  void Mixed() {
    constexpr int kEach = 8;
    if (++iterations % 4 == 0) {
      Graph();
      return;
    }
    for (const workload::TraceKernel& kernel : spec.trace->kernels()) {
      if (++commands % kEach == 0) {
        // From the host it is a matter of bytes, which nobody limits here; the others are the device's.
        const Result r = driver.CopyHtoDAsync(buffer, host.data(), kCopied, stream);
        if (r != Result::kSuccess && status.ok()) status = driver::ToStatus(r, "a copy");
        Put({1, gate::Work::Kind::kKernel, 0},
            [&] { return driver.CopyDtoDAsync(buffer + kCopied, buffer, kCopied, stream); });
        Put({2, gate::Work::Kind::kKernel, 0},
            [&] { return driver.SetD8Async(buffer, 0, kCopied, stream); });
      }
      const bool cooperative =
          iterations % (8 * kEach) == 1 && &kernel == &spec.trace->kernels().front();
      if (cooperative) {
        workload::SpinLaunch launch = workload::SpinLaunchOf(kernel, {.sms = run.sms});
        uint64_t stamps = 0;
        void* params[] = {&launch.duration_ns, &launch.block_ns, &stamps};
        const driver::LaunchShape shape{
            {launch.grid, 1, 1}, {launch.block, 1, 1}, launch.shared_bytes};
        Put({3, gate::Work::Kind::kCooperative, 1}, [&] {
          return driver.LaunchCooperative(functions[launch.entry], shape, stream, params);
        });
      } else {
        Submit(kernel, gate != nullptr);
      }
      if (stop.load(std::memory_order_relaxed)) return;
    }
  }

  void Submit(const workload::TraceKernel& kernel, bool gated) {
    workload::SpinLaunch launch = workload::SpinLaunchOf(kernel, {.sms = run.sms});
    const bool late = spec.prediction_bias != 1 && clock().Now() > start + (end - start) / 2;
    if (late)
      launch.duration_ns =
          static_cast<uint64_t>(static_cast<double>(launch.duration_ns) * spec.prediction_bias);
    uint64_t stamps = 0;
    void* params[] = {&launch.duration_ns, &launch.block_ns, &stamps};
    const driver::LaunchShape shape{{launch.grid, 1, 1}, {launch.block, 1, 1}, launch.shared_bytes};
    const driver::Function function = functions[launch.entry];
    gate::Admission admission;
    if (gated) {
      admission = gate->Admit(*stream_gate, {gate::KernelKey(function, shape),
                                             gate::Work::Kind::kKernel, FootprintOf(kernel)});
      if (admission.verdict != gate::Verdict::kAdmitted) return;
    }
    const int level = gated ? gate::Gate::LaneOf(*stream_gate).Level() : 0;
    const Result r = level > 0 ? driver.LaunchAt(priority - level, function, shape, stream, params)
                               : driver.Launch(function, shape, stream, params);
    if (gated) gate->Complete(admission, r == Result::kSuccess);
    if (r != Result::kSuccess && status.ok()) status = driver::ToStatus(r, "Launch");
  }

  void Synchronize() {
    if (gate != nullptr) gate->Synchronizing(stream_gate);
    driver.SynchronizeStream(stream);
    if (gate != nullptr) gate->Synchronized();
  }

  double Uniform() { return std::generate_canonical<double, 53>(random); }

  void Iterate() {
    if (spec.mode == Mode::kGraph) {
      Graph();
      return;
    }
    if (spec.mode == Mode::kMixed) {
      Mixed();
      return;
    }
    const bool leased = spec.mode == Mode::kLease || spec.mode == Mode::kLeaseSync ||
                        spec.mode == Mode::kLeaseExclusive;
    if (leased && gate != nullptr) {
      gate::LeaseRequest request;
      request.hint = workload::Summarize(*spec.trace).total;
      request.exclusive = spec.mode == Mode::kLeaseExclusive;
      request.streams = {stream_gate};
      const absl::StatusOr<uint64_t> lease = gate->AcquireLease(request);
      if (!lease.ok()) {
        status = lease.status();
        return;
      }
      for (const workload::TraceKernel& kernel : spec.trace->kernels()) Submit(kernel, false);
      if (spec.mode != Mode::kLease) driver.SynchronizeStream(stream);
      gate->ReleaseLease(*lease);
      return;
    }
    for (const workload::TraceKernel& kernel : spec.trace->kernels()) {
      Submit(kernel, gate != nullptr);
      if (spec.mode == Mode::kSyncEach) Synchronize();
      if (spec.mode == Mode::kSlowHost) clock().SleepUntil(clock().Now() + kernel.duration * 5 / 3);
      if (stop.load(std::memory_order_relaxed)) return;
    }
  }

  void Play() {
    status = SetUp();
    clock().SleepUntil(start + Micros(7 * account));
    if (!status.ok()) return;
    if (spec.mode == Mode::kOpenLoop) {
      const double mean =
          static_cast<double>(workload::Summarize(*spec.trace).total.count()) / spec.load;
      Time arrival = start;
      for (;;) {
        arrival += Nanos(static_cast<int64_t>(-std::log(1 - Uniform()) * mean));
        if (arrival >= end) break;
        clock().SleepUntil(arrival);
        Iterate();
        Synchronize();
        if (arrival > start + Nanos(static_cast<int64_t>(run.warm_up * 1e9))) {
          result.latency_ns.push_back(static_cast<double>((clock().Now() - arrival).count()));
        }
      }
    } else {
      while (!Done() && status.ok()) {
        const double at = static_cast<double>((clock().Now() - start).count()) * 1e-9;
        if (spec.stop_at >= 0 && at >= spec.stop_at && at < spec.return_at) {
          Synchronize();
          clock().SleepUntil(start + Nanos(static_cast<int64_t>(spec.return_at * 1e9)));
        }
        Iterate();
        if (spec.mode == Mode::kSync || spec.mode == Mode::kSyncOnly) Synchronize();
        if (spec.mode == Mode::kSync) {
          sim.spend(static_cast<uint64_t>(3e5 + Uniform() * 1.7e6));
        }
      }
    }
    driver.SynchronizeStream(stream);
    if (gate != nullptr) gate->RemoveStream(stream_gate);
    if (buffer != 0) driver.MemFree(buffer);
    driver.PopContext();
  }
};

}  // namespace

absl::StatusOr<CaseResult> Run(Driver& driver, const CaseSpec& spec) {
  const testing::SimControl sim(driver);
  const auto wall = std::chrono::steady_clock::now();
  GPUSHARE_RETURN_IF_ERROR(
      sim.Restart(driver, "sms=" + std::to_string(spec.sms) +
                              (spec.overlap ? ",overlap=footprint" : ",overlap=serial") + "," +
                              spec.device + ",clock=virtual,seed=" + std::to_string(spec.seed)));
  sim.thread_enter("main");
  sim.set_log([](const char* line, void*) { std::fprintf(stderr, "%s\n", line); }, nullptr);
  GPUSHARE_ASSIGN_OR_RETURN(driver::Context context, driver.RetainPrimaryContext(0));
  CaseResult result;
  result.tenants.resize(spec.tenants.size());
  {
    std::unique_ptr<gate::Engine> engine;
    if (spec.gated) {
      gate::EngineOptions options = spec.engine;
      options.sm_count = spec.sms;
      GPUSHARE_ASSIGN_OR_RETURN(engine, gate::Engine::Create(driver, context, options));
    }
    // Set-up (modules, streams) takes virtual time; everybody starts after it.
    const Time start = driver.clock().Now() + Millis(100);
    const Time end = start + Nanos(static_cast<int64_t>(spec.seconds * 1e9));
    std::atomic<bool> stop{false};
    std::vector<std::unique_ptr<Player>> players;
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    for (size_t i = 0; i < spec.tenants.size(); ++i) {
      gate::Gate* gate = nullptr;
      if (spec.gated) {
        GPUSHARE_ASSIGN_OR_RETURN(gate,
                                  engine->AddTenant(spec.tenants[i].name, spec.tenants[i].options));
      }
      players.push_back(std::unique_ptr<Player>(new Player{spec.tenants[i], spec, driver, context,
                                                           sim, gate, static_cast<uint32_t>(i + 1),
                                                           start, end, result.tenants[i], stop}));
      Player* const player = players.back().get();
      threads.push_back(
          driver.clock().StartThread("tenant-" + std::to_string(i), [player] { player->Play(); }));
    }
    const int samples = static_cast<int>(std::lround(spec.seconds / kSampleSeconds));
    for (int s = 0; s <= samples; ++s) {
      driver.clock().SleepUntil(start + Millis(10) * s);
      double busy = 0, sm = 0;
      sim.device_busy(0, &busy, &sm);
      result.busy_ns.push_back(busy);
      for (size_t i = 0; i < spec.tenants.size(); ++i) {
        gpushare_sim_truth truth{};
        sim.account_truth(0, static_cast<uint32_t>(i + 1), &truth);
        result.tenants[i].used_ns.push_back(truth.used_ns);
        result.tenants[i].work_ns.push_back(truth.work_ns);
        if (const gate::Gate* gate = players[i]->gate; gate != nullptr) {
          result.tenants[i].measured_ns.push_back(
              static_cast<double>(gate->stats().measured.count()));
          result.tenants[i].virtual_time_ns.push_back(gate->view().virtual_time_ns);
        }
      }
    }
    stop.store(true);
    for (auto& thread : threads) thread->Join();
    for (size_t i = 0; i < players.size(); ++i) {
      GPUSHARE_RETURN_IF_ERROR(players[i]->status);
      if (players[i]->gate == nullptr) continue;
      result.tenants[i].stats = players[i]->gate->stats();
      engine->RemoveTenant(players[i]->gate);
    }
  }
  driver.ReleasePrimaryContext(0);
  sim.thread_leave();
  result.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
  return result;
}

double WorstError(const CaseSpec& spec, const CaseResult& result, const std::vector<double>& want,
                  double window) {
  const size_t n = static_cast<size_t>(std::lround(window / kSampleSeconds));
  const size_t first = static_cast<size_t>(std::lround(spec.warm_up / kSampleSeconds));
  double worst = 0;
  for (size_t k = first; k + n < result.busy_ns.size(); ++k) {
    double total = 0;
    for (const TenantResult& t : result.tenants) total += t.used_ns[k + n] - t.used_ns[k];
    for (size_t i = 0; i < want.size(); ++i) {
      const double share =
          (result.tenants[i].used_ns[k + n] - result.tenants[i].used_ns[k]) / std::max(total, 1.0);
      worst = std::max(worst, std::fabs(share - want[i]) * 100);
    }
  }
  return worst;
}

CapError WorstCapError(const CaseSpec& spec, const CaseResult& result, size_t tenant, double cap,
                       double window) {
  const size_t n = static_cast<size_t>(std::lround(window / kSampleSeconds));
  const size_t first = static_cast<size_t>(std::lround(spec.warm_up / kSampleSeconds));
  CapError worst;
  for (size_t k = first; k + n < result.busy_ns.size(); ++k) {
    const auto& used = result.tenants[tenant].used_ns;
    const double share = (used[k + n] - used[k]) / (window * 1e9);
    worst.over = std::max(worst.over, (share - cap) * 100);
    worst.under = std::max(worst.under, (cap - share) * 100);
  }
  return worst;
}

double WorstMeterError(const CaseSpec& spec, const CaseResult& result, size_t tenant,
                       double window) {
  const size_t n = static_cast<size_t>(std::lround(window / kSampleSeconds));
  const size_t first = static_cast<size_t>(std::lround(spec.warm_up / kSampleSeconds));
  const TenantResult& t = result.tenants[tenant];
  double worst = 0;
  for (size_t k = first; k + n < t.measured_ns.size(); ++k) {
    const double error =
        t.measured_ns[k + n] - t.measured_ns[k] - (t.used_ns[k + n] - t.used_ns[k]);
    worst = std::max(worst, std::fabs(error) / (window * 1e9) * 100);
  }
  return worst;
}

double BusyRatio(const CaseSpec& spec, const CaseResult& result) {
  const size_t first = static_cast<size_t>(std::lround(spec.warm_up / kSampleSeconds));
  const size_t last = result.busy_ns.size() - 1;
  return (result.busy_ns[last] - result.busy_ns[first]) /
         (static_cast<double>(last - first) * kSampleSeconds * 1e9);
}

double WorkPerSecond(const CaseSpec& spec, const CaseResult& result) {
  const size_t first = static_cast<size_t>(std::lround(spec.warm_up / kSampleSeconds));
  const size_t last = result.busy_ns.size() - 1;
  double work = 0;
  for (const TenantResult& t : result.tenants) work += t.work_ns[last] - t.work_ns[first];
  return work / (static_cast<double>(last - first) * kSampleSeconds);
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t i = static_cast<size_t>(q * static_cast<double>(values.size()));
  return values[std::min(i, values.size() - 1)];
}

std::shared_ptr<const workload::KernelTrace> Synthetic(const std::string& name,
                                                       const std::vector<double>& micros,
                                                       int repeat, int sms) {
  auto trace = std::make_shared<workload::KernelTrace>(name);
  for (int r = 0; r < repeat; ++r) {
    for (size_t i = 0; i < micros.size(); ++i) {
      trace->Add(name + "_" + std::to_string(i), workload::Bound::kUnknown, sms,
                 Nanos(static_cast<int64_t>(micros[i] * 1000)));
    }
  }
  return trace;
}

}  // namespace gpushare::bench
