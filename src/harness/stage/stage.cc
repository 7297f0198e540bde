// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/stage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/sync.h"
#include "base/unique_fd.h"
#include "harness/stage/driver_calls.h"
#include "harness/stage/parent.h"
#include "harness/start.h"
#include "workload/spin.h"

namespace gpushare::harness {
namespace {

// Processor time of this process, in ns.
int64_t ProcessorTime() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Writes the outcome atomically, since the harness may read the file at any time.
bool Write(const Plan& plan, const Outcome& outcome) {
  const std::string part = plan.outcome + ".part";
  std::ofstream out(part, std::ios::binary);
  out << FormatOutcome(outcome);
  out.close();
  if (out.good() && std::rename(part.c_str(), plan.outcome.c_str()) == 0) return true;
  std::fprintf(stderr, "%s: the disk is full, or it cannot be written\n", part.c_str());
  return false;
}

// A port that tells each kernel where to write its stamps.
class StampedPort final : public player::Port {
 public:
  StampedPort(player::Port& port, Witness& witness, uint32_t account)
      : port_(port), witness_(witness), account_(account) {}

  absl::Status Launch(const player::Step& step) override {
    if (step.stamps != 0) return port_.Launch(step);
    player::Step stamped = step;
    stamped.stamps = witness_.NextStamps(account_, Nanos(static_cast<int64_t>(step.duration_ns)));
    return port_.Launch(stamped);
  }
  absl::Status Synchronize() override { return port_.Synchronize(); }
  Time Now() override { return port_.Now(); }
  void SleepUntil(Time when) override { port_.SleepUntil(when); }

 private:
  player::Port& port_;
  Witness& witness_;
  const uint32_t account_;
};

// A tenant that plays: its own program, and the kernel with the fault.
struct Part {
  std::unique_ptr<Seat> seat;
  std::unique_ptr<StampedPort> port = nullptr;
  player::Program program;
  player::Step faulty = {};
  std::string faulty_name = {};
  player::PlayResult result = {};
  absl::Status status = absl::OkStatus();
};

class Performance {
 public:
  Performance(const Plan& plan, const OpenStage& open, Witness& witness)
      : plan_(plan),
        open_(open),
        witness_(witness),
        clock_(witness.clock()),
        asking_(
            clock_, [this] { return witness_.MemoryUsed(); }, TurnsOf(plan)) {}

  // Runs on a thread of the clock.
  absl::Status Conduct() {
    GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<Stage> stage, open_(clock_));
    GPUSHARE_ASSIGN_OR_RETURN(const std::vector<TenantPlan> tenants, stage->Prepare(plan_));
    parts_.reserve(plan_.tenants.size());
    for (const TenantPlan& plan : tenants) GPUSHARE_RETURN_IF_ERROR(Sit(*stage, plan));
    outcome_.setup_cpu_ns = ProcessorTime();
    GPUSHARE_ASSIGN_OR_RETURN(const Time start, AwaitStart());
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!plan_.tenants[i].plays) continue;
      threads.push_back(clock_.StartThread(plan_.tenants[i].name, [=, this] { Play(i, start); }));
    }
    if (!asking_.nobody_asks()) {
      threads.push_back(
          clock_.StartThread("asking", [=, this] { asking_.Play(start, start + plan_.length); }));
    }
    Sample(start);
    if (plan_.tolerant) {
      // Does not wait for threads that wait for endless work.
      Outcome outcome = WhatCame();
      if (const absl::Status told = witness_.TellSoFar(start, &outcome); !told.ok()) {
        outcome = Outcome{.error = std::string(told.message())};
      }
      _exit(Write(plan_, outcome) ? 0 : 1);
    }
    stop_.store(true);
    for (auto& thread : threads) thread->Join();
    outcome_.play_cpu_ns = ProcessorTime() - outcome_.setup_cpu_ns;
    for (const Part& part : parts_) GPUSHARE_RETURN_IF_ERROR(part.status);
    for (size_t i = 0; i < parts_.size(); ++i) {
      GPUSHARE_RETURN_IF_ERROR(asking_.Take(i).status);
      outcome_.tenants[i].requests = std::move(parts_[i].result.requests);
      outcome_.tenants[i].away = std::move(parts_[i].result.absences);
      outcome_.tenants[i].launches = parts_[i].result.launches;
    }
    outcome_ = WhatCame();
    GPUSHARE_RETURN_IF_ERROR(witness_.Tell(start, &outcome_));
    if (plan_.calls) GPUSHARE_RETURN_IF_ERROR(MeasureThem());
    parts_.clear();
    return absl::OkStatus();
  }

  Outcome TakeOutcome() { return std::move(outcome_); }

 private:
  // Reuses the file of the start line, which is no longer needed.
  static base::UniqueFd TurnsOf(const Plan& plan) {
    if (!plan.stamps || plan.parties < 2) return {};
    return base::UniqueFd(open(plan.barrier.c_str(), O_RDWR | O_CLOEXEC));
  }

  absl::Status Sit(Stage& stage, const TenantPlan& plan) {
    const auto [known, is_new] = traces_.try_emplace(plan.trace, "");
    if (is_new) {
      GPUSHARE_ASSIGN_OR_RETURN(known->second, workload::ReadTraceFile(plan.trace));
    }
    workload::KernelTrace trace = known->second;
    const Fault::Kind kind = plan.fault.kind;
    const bool by_kernel =
        kind == Fault::Kind::kIllegalAddress || kind == Fault::Kind::kEndlessKernel;
    if (by_kernel) {
      trace.Add("faulty", workload::Bound::kUnknown, std::max<int64_t>(plan.fault.sms, 1),
                Micros(10));
    }
    Part& part = parts_.emplace_back();
    GPUSHARE_ASSIGN_OR_RETURN(part.seat, stage.Sit(plan, trace));
    part.program = part.seat->program();
    if (by_kernel) {
      GPUSHARE_ASSIGN_OR_RETURN(const workload::SpinModule spin, workload::MakeSpinModule(trace));
      part.faulty_name = spin.entries.back();
      part.faulty = part.program.steps.back();
      part.program.steps.pop_back();
    }
    outcome_.tenants.emplace_back().name = plan.name;
    const auto account = static_cast<uint32_t>(parts_.size());
    const auto passes =
        static_cast<size_t>(plan_.length / std::max(part.program.duration, Nanos(1)));
    GPUSHARE_RETURN_IF_ERROR(
        witness_.Follow(part.seat->stream(), account, (passes + 1) * part.program.steps.size()));
    part.port = std::make_unique<StampedPort>(part.seat->port(), witness_, account);
    asking_.Add(part.seat.get(), plan.allocations);
    return absl::OkStatus();
  }

  absl::StatusOr<Time> AwaitStart() {
    GPUSHARE_ASSIGN_OR_RETURN(StartLine line, StartLine::Open(plan_.barrier));
    outcome_.ready_ns.push_back(base::RealClock().Now().time_since_epoch().count());
    line.Ready(clock_.Now());
    const Nanos look_every = StartLine::LookEvery(plan_.parties);
    for (;;) {
      const std::optional<Time> start = line.begins(plan_.parties);
      if (start.has_value()) return *start;
      clock_.SleepUntil(clock_.Now() + look_every);
    }
  }

  void Play(size_t i, Time start) {
    Part& part = parts_[i];
    const Fault& fault = plan_.tenants[i].fault;
    const bool breaks = fault.kind != Fault::Kind::kNone;
    player::PlayOptions options;
    options.mode = plan_.tenants[i].mode;
    options.start = start;
    options.end = start + (breaks ? fault.at : plan_.length);
    options.arrivals = plan_.tenants[i].arrivals;
    options.absences = plan_.tenants[i].absences;
    options.batches = plan_.tenants[i].batches;
    options.batch_wait = plan_.tenants[i].batch_wait;
    options.stop = &stop_;
    absl::Status played = player::Play(part.program, options, *part.port, &part.result);
    if (played.ok() && breaks) played = Break(i, start);
    if (played.ok() && fault.kind == Fault::Kind::kAllMemory) {
      options.end = start + plan_.length;
      played = player::Play(part.program, options, *part.port, &part.result);
    }
    if (plan_.tolerant) {
      const base::MutexLock lock(&mutex_);
      outcome_.tenants[i].error = std::string(played.message());
    } else {
      part.status = played;
    }
  }

  absl::Status Break(size_t i, Time start) {
    const Fault& fault = plan_.tenants[i].fault;
    Part& part = parts_[i];
    Outcome so_far;
    GPUSHARE_RETURN_IF_ERROR(witness_.TellSoFar(start, &so_far));
    {
      const base::MutexLock lock(&mutex_);
      outcome_.tenants[i].broke_at = clock_.Now() - start;
    }
    const int sms = so_far.sms;
    so_far = WhatCame();
    so_far.sms = sms;
    switch (fault.kind) {
      case Fault::Kind::kNone:
        break;
      case Fault::Kind::kIllegalAddress:
        GPUSHARE_RETURN_IF_ERROR(witness_.MakeIllegal(part.faulty_name, &part.faulty));
        GPUSHARE_RETURN_IF_ERROR(part.port->Launch(part.faulty));
        return part.port->Synchronize();
      case Fault::Kind::kEndlessKernel:
        GPUSHARE_RETURN_IF_ERROR(witness_.MakeEndless(
            part.faulty_name, static_cast<uint32_t>(i + 1), clock_.Now(), &part.faulty));
        return part.port->Launch(part.faulty);
      case Fault::Kind::kKilled:
        // Writes the outcome so far, since the process kills itself now.
        Write(plan_, so_far);
        kill(getpid(), SIGKILL);
        break;
      case Fault::Kind::kAllMemory:
        return TakeAllMemory(*part.seat);
    }
    return absl::OkStatus();
  }

  static absl::Status TakeAllMemory(Seat& seat) {
    constexpr uint64_t kMost = uint64_t{1} << 30, kLeast = uint64_t{1} << 20;
    for (uint64_t piece = kMost; piece >= kLeast;) {
      const absl::StatusOr<uint64_t> taken = seat.Allocate(MemoryFamily::kMalloc, piece);
      if (taken.ok()) continue;
      if (!absl::IsResourceExhausted(taken.status())) return taken.status();
      piece /= 2;
    }
    return absl::OkStatus();
  }

  void Sample(Time start) {
    if (!witness_.knows_now()) {
      // Kernels write their stamps when they end: gives those that are running some time for it.
      return clock_.SleepUntil(start + plan_.length + (plan_.tolerant ? Millis(5) : Nanos(0)));
    }
    const bool is_fine = plan_.fine > Nanos(0);
    for (Nanos at{0}; at <= plan_.length; at += is_fine ? plan_.fine : plan_.sample) {
      clock_.SleepUntil(start + at);
      for (size_t i = 0; i < parts_.size(); ++i) {
        const auto account = static_cast<uint32_t>(i + 1);
        const bool is_sample = at % plan_.sample == Nanos(0);
        const int64_t used = witness_.Used(account, plan_.sm_time);
        const int64_t work = is_sample ? witness_.Work(account) : 0;
        const base::MutexLock lock(&mutex_);
        TenantOutcome& tenant = outcome_.tenants[i];
        if (is_sample) tenant.used_ns.push_back(used);
        if (is_sample) tenant.work_ns.push_back(work);
        if (is_fine) tenant.fine_ns.push_back(used);
      }
    }
  }

  Outcome WhatCame() {
    Outcome outcome;
    {
      const base::MutexLock lock(&mutex_);
      outcome = outcome_;
    }
    for (size_t i = 0; i < outcome.tenants.size(); ++i) {
      TenantOutcome& tenant = outcome.tenants[i];
      Asking::Record record = asking_.Take(i);
      tenant.memory = std::move(record.requests);
      tenant.most_bytes = record.most_bytes;
      if (tenant.error.empty()) tenant.error = std::string(record.status.message());
    }
    return outcome;
  }

  absl::Status MeasureThem() {
    GPUSHARE_ASSIGN_OR_RETURN(const DriverTable driver, DriverTableOf(witness_.library()));
    const Part& part = parts_.front();
    GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<Calls> mine, part.seat->MakeCalls());
    GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<Calls> bare,
                              MakeDriverCalls(driver, part.program.steps.front()));
    GPUSHARE_ASSIGN_OR_RETURN(outcome_.calls, MeasureCalls(*mine, *bare));
    return absl::OkStatus();
  }

  const Plan& plan_;
  const OpenStage& open_;
  Witness& witness_;
  base::Clock& clock_;
  std::map<std::string, workload::KernelTrace>
      traces_;  // by path, since tenants of a group share one
  std::vector<Part> parts_;
  Asking asking_;
  std::atomic<bool> stop_{false};
  base::Mutex mutex_;  // never held across a call of the driver
  Outcome outcome_;    // `tenants` under the mutex while they play
};

absl::StatusOr<Outcome> PlayPlan(const Plan& plan, const OpenStage& open) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<Witness> witness, Witness::Open(plan));
  Performance performance(plan, open, *witness);
  absl::Status status;
  witness->clock().StartThread("conductor", [&] { status = performance.Conduct(); })->Join();
  if (!status.ok()) return status;
  return performance.TakeOutcome();
}

}  // namespace

int RunStage(int argc, char** argv, const OpenStage& open) {
  if (argc != 3 || !EndWithParent(argv[1])) {
    std::fprintf(stderr, "usage: %s PARENT PLAN (this is part of `gpushare bench`)\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const absl::StatusOr<Plan> plan = ParsePlan(text);
  if (!plan.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[0], std::string(plan.status().message()).c_str());
    return 2;
  }
  absl::StatusOr<Outcome> outcome = PlayPlan(*plan, open);
  if (absl::IsUnimplemented(outcome.status())) {
    outcome = Outcome{.not_supported = std::string(outcome.status().message())};
  }
  if (!outcome.ok() && !plan->tolerant) {
    // Reports at once: the processes that begin together would wait for this one.
    std::fprintf(stderr, "%s\n", std::string(outcome.status().message()).c_str());
    return 1;
  }
  if (!outcome.ok()) outcome = Outcome{.error = std::string(outcome.status().message())};
  return Write(*plan, *outcome) ? 0 : 1;
}

}  // namespace gpushare::harness
