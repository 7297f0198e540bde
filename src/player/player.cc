// SPDX-License-Identifier: Apache-2.0
#include "player/player.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"

namespace gpushare::player {
namespace {

class Run {
 public:
  Run(const Program& program, const PlayOptions& options, Port& port, PlayResult* result)
      : program_(program), options_(options), port_(port), result_(*result) {}

  absl::Status Play() {
    port_.SleepUntil(options_.start);
    switch (options_.mode) {
      case PlayMode::kOpenLoop:
        return Serve();
      case PlayMode::kBatches:
        return ServeBatches();
      case PlayMode::kBacklog:
      case PlayMode::kSyncPerIteration:
        break;
    }
    return Loop();
  }

 private:
  bool Stopped() const {
    return options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed);
  }

  absl::Status Launch(const Step& step) {
    GPUSHARE_RETURN_IF_ERROR(port_.Launch(step));
    ++result_.launches;
    result_.work += Nanos(static_cast<int64_t>(step.duration_ns));
    return absl::OkStatus();
  }

  absl::Status EndPass() {
    ++result_.passes;
    return options_.after_pass ? options_.after_pass() : absl::OkStatus();
  }

  absl::Status Serve() {
    for (const Nanos arrival : options_.arrivals) {
      const Time at = options_.start + arrival;
      if (at >= options_.end || Stopped()) break;
      port_.SleepUntil(at);
      const Nanos begun = port_.Now() - options_.start;
      for (const Step& step : program_.steps) GPUSHARE_RETURN_IF_ERROR(Launch(step));
      GPUSHARE_RETURN_IF_ERROR(port_.Synchronize());
      result_.requests.push_back({arrival, port_.Now() - at, begun});
      GPUSHARE_RETURN_IF_ERROR(EndPass());
    }
    return absl::OkStatus();
  }

  absl::Status ServeBatches() {
    const std::vector<Nanos>& arrivals = options_.arrivals;
    const size_t most = options_.batches.back().most;
    for (size_t next = 0; next < arrivals.size();) {
      const Time oldest = options_.start + arrivals[next];
      if (oldest >= options_.end || Stopped()) break;
      const size_t last = next + most - 1;
      const Time full = last < arrivals.size() ? options_.start + arrivals[last] : kNever;
      port_.SleepUntil(std::min(full, oldest + options_.batch_wait));
      const Time now = port_.Now();
      if (now >= options_.end) break;
      size_t end = next;
      while (end < arrivals.size() && end <= last && options_.start + arrivals[end] <= now) ++end;
      GPUSHARE_RETURN_IF_ERROR(LaunchBatch(end - next));
      GPUSHARE_RETURN_IF_ERROR(port_.Synchronize());
      for (; next < end; ++next) {
        const Time arrival = options_.start + arrivals[next];
        result_.requests.push_back({arrivals[next], port_.Now() - arrival, now - options_.start});
      }
      GPUSHARE_RETURN_IF_ERROR(EndPass());
    }
    return absl::OkStatus();
  }

  // Launches the smallest pass that serves this many requests.
  absl::Status LaunchBatch(size_t requests) {
    for (const BatchPass& pass : options_.batches) {
      if (pass.most < requests) continue;
      for (size_t i = 0; i < pass.steps; ++i) {
        GPUSHARE_RETURN_IF_ERROR(Launch(program_.steps[pass.first_step + i]));
      }
      break;
    }
    return absl::OkStatus();
  }

  absl::Status Loop() {
    size_t next_absence = 0;
    while (port_.Now() < options_.end && !Stopped()) {
      if (next_absence < options_.absences.size() &&
          port_.Now() >= options_.start + options_.absences[next_absence].from) {
        GPUSHARE_RETURN_IF_ERROR(port_.Synchronize());
        const Time until =
            std::min(options_.start + options_.absences[next_absence++].to, options_.end);
        if (const Time from = port_.Now(); from < until) {
          result_.absences.push_back({from - options_.start, until - options_.start});
        }
        port_.SleepUntil(until);
        continue;
      }
      bool complete = true;
      for (const Step& step : program_.steps) {
        // A pass may be long, and the queue holds several: the end must not wait for whole passes.
        if (port_.Now() >= options_.end || Stopped()) {
          complete = false;
          break;
        }
        GPUSHARE_RETURN_IF_ERROR(Launch(step));
      }
      if (options_.mode == PlayMode::kSyncPerIteration) {
        GPUSHARE_RETURN_IF_ERROR(port_.Synchronize());
      }
      if (complete) GPUSHARE_RETURN_IF_ERROR(EndPass());
    }
    return port_.Synchronize();
  }

  const Program& program_;
  const PlayOptions& options_;
  Port& port_;
  PlayResult& result_;
};

}  // namespace

absl::Status Play(const Program& program, const PlayOptions& options, Port& port,
                  PlayResult* result) {
  if (program.steps.empty()) return absl::InvalidArgumentError("the program has no kernels");
  if (options.mode == PlayMode::kBatches) {
    if (options.batches.empty()) return absl::InvalidArgumentError("there are no batches");
    for (const BatchPass& pass : options.batches) {
      if (pass.most > 0 && pass.first_step <= program.steps.size() &&
          pass.steps <= program.steps.size() - pass.first_step) {
        continue;
      }
      return absl::InvalidArgumentError("a batch has kernels that the program has not");
    }
  }
  return Run(program, options, port, result).Play();
}

Nanos LatencyQuantile(const std::vector<Request>& requests, double q) {
  if (requests.empty()) return Nanos(0);
  std::vector<Nanos> latencies;
  latencies.reserve(requests.size());
  for (const Request& request : requests) latencies.push_back(request.latency);
  const double rank = std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(latencies.size()));
  const size_t index = static_cast<size_t>(std::max(1.0, rank)) - 1;
  std::nth_element(latencies.begin(), latencies.begin() + static_cast<std::ptrdiff_t>(index),
                   latencies.end());
  return latencies[index];
}

}  // namespace gpushare::player
