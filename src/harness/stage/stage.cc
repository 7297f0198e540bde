// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/stage.h"

#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "harness/stage/parent.h"
#include "harness/start.h"

namespace gpushare::harness {
namespace {

class Performance {
 public:
  Performance(const Plan& plan, const OpenStage& open, Witness& witness)
      : plan_(plan), open_(open), witness_(witness), clock_(witness.clock()) {}

  // On a thread of the clock.
  absl::Status Conduct() {
    GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<Stage> stage, open_(clock_));
    for (const TenantPlan& plan : plan_.tenants) {
      GPUSHARE_ASSIGN_OR_RETURN(const workload::KernelTrace trace,
                                workload::ReadTraceFile(plan.trace));
      GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Seat> seat, stage->Sit(plan, trace));
      seats_.push_back(std::move(seat));
      outcome_.tenants.emplace_back().name = plan.name;
      witness_.Follow(seats_.back()->stream(), static_cast<uint32_t>(seats_.size()));
    }
    GPUSHARE_ASSIGN_OR_RETURN(const Time start, AwaitStart());
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    results_.resize(seats_.size());
    statuses_.resize(seats_.size());
    for (size_t i = 0; i < seats_.size(); ++i) {
      threads.push_back(clock_.StartThread(plan_.tenants[i].name, [=, this] { Play(i, start); }));
    }
    Sample(start);
    stop_.store(true);
    for (auto& thread : threads) thread->Join();
    for (size_t i = 0; i < seats_.size(); ++i) {
      GPUSHARE_RETURN_IF_ERROR(statuses_[i]);
      outcome_.tenants[i].requests = std::move(results_[i].requests);
      outcome_.tenants[i].launches = results_[i].launches;
    }
    seats_.clear();
    return absl::OkStatus();
  }

  Outcome TakeOutcome() { return std::move(outcome_); }

 private:
  absl::StatusOr<Time> AwaitStart() {
    GPUSHARE_ASSIGN_OR_RETURN(StartLine line, StartLine::Open(plan_.barrier));
    line.Ready(clock_.Now());
    for (;;) {
      const std::optional<Time> start = line.begins(plan_.parties);
      if (start.has_value()) return *start;
      clock_.SleepUntil(clock_.Now() + StartLine::kLookEvery);
    }
  }

  void Play(size_t i, Time start) {
    player::PlayOptions options;
    options.mode = plan_.tenants[i].mode;
    options.start = start;
    options.end = start + plan_.length;
    options.arrivals = plan_.tenants[i].arrivals;
    options.stop = &stop_;
    statuses_[i] = player::Play(seats_[i]->program(), options, seats_[i]->port(), &results_[i]);
  }

  void Sample(Time start) {
    const bool is_fine = plan_.fine > Nanos(0);
    for (Nanos at{0}; at <= plan_.length; at += is_fine ? plan_.fine : plan_.sample) {
      clock_.SleepUntil(start + at);
      for (size_t i = 0; i < seats_.size(); ++i) {
        TenantOutcome& tenant = outcome_.tenants[i];
        const int64_t used = witness_.Used(static_cast<uint32_t>(i + 1));
        if (at % plan_.sample == Nanos(0)) tenant.used_ns.push_back(used);
        if (is_fine) tenant.fine_ns.push_back(used);
      }
    }
  }

  const Plan& plan_;
  const OpenStage& open_;
  Witness& witness_;
  base::Clock& clock_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::vector<player::PlayResult> results_;
  std::vector<absl::Status> statuses_;
  std::atomic<bool> stop_{false};
  Outcome outcome_;
};

absl::StatusOr<Outcome> PlayPlan(const Plan& plan, const OpenStage& open) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<Witness> witness, Witness::Open(plan.simulated));
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
  if (!outcome.ok()) outcome = Outcome{std::string(outcome.status().message()), {}};
  // Whole or not at all: the harness may look at any time.
  const std::string part = plan->outcome + ".part";
  std::ofstream out(part, std::ios::binary);
  out << FormatOutcome(*outcome);
  out.close();
  return out.good() && std::rename(part.c_str(), plan->outcome.c_str()) == 0 ? 0 : 1;
}

}  // namespace gpushare::harness
