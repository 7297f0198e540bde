// SPDX-License-Identifier: Apache-2.0
#include "meter/graph_study.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpushare::meter {
namespace {

// A guess is believed if its error is at most this part of the error without a study.
constexpr double kBelieved = 0.5;
// If the root mean square error without a study is at most this part of the predicted times, it is within the variation of
// costs, and there is nothing to find.
constexpr double kClose = 0.05;
// With fewer stamps than this a study concludes nothing.
constexpr int kLeastStamps = 32;
// Stamps during the first launches do not count, since work from before the recording runs beside them.
constexpr int kFirstLaunches = 2;
// Errors count up to this part of the graph's length; a larger error has another cause.
constexpr double kClip = 0.25;

// Kernels of others that fill the device, and wide kernels of the graph, wait for one another. In which order they do hangs on
// microseconds, so their lateness tells little of the graph.
constexpr float kFills = 0.9f;

bool Fills(const Replay::Command& command) {
  const float waves = std::max(std::ceil(command.footprint), 1.0f);
  return command.footprint >= kFills * waves;
}

// The number of kernels of several waves.
int WithWaves(const GraphStudy::Graph& graph) {
  const auto has_waves = [](const auto& kernel) { return kernel.footprint > 1; };
  return static_cast<int>(
      graph.measured.empty()
          ? std::count_if(graph.kernels.begin(), graph.kernels.end(), has_waves)
          : std::count_if(graph.measured.begin(), graph.measured.end(), has_waves));
}

}  // namespace

GraphStudy::GraphStudy(Graph graph) : graph_(std::move(graph)) {
  GraphShape& measured = graph_.measured;
  if (graph_.edges.has_value()) {
    branches_ =
        WithWaves(graph_) > kMostWithWaves ? nullptr : Branches::Of(graph_.count, *graph_.edges);
    if (branches_ == nullptr) return;
  }
  if (branches_ != nullptr && !measured.empty()) {
    const double whole = LengthTogether(measured, *branches_, graph_.sm_count);
    if (!IsAlike(static_cast<float>(whole))) measured.clear();
    for (GraphPart& kernel : measured) kernel.length /= static_cast<float>(whole);
  }
  if (!graph_.kernels.empty() || (measured.empty() && !graph_.edges.has_value())) {
    search_.emplace(graph_.kernels, ShapeSearch::Starts(graph_.kernels, graph_.now));
  }
  if (!graph_.now.empty()) found_ = std::move(graph_.now);
}

GraphShape GraphStudy::ShapeOf(const ShapeSearch::Guess& guess) const {
  GraphShape kernels = guess.ShapeOf(graph_.kernels);
  if (branches_ == nullptr) return kernels;
  const auto whole = static_cast<float>(LengthTogether(kernels, *branches_, graph_.sm_count));
  for (GraphPart& kernel : kernels) kernel.length /= whole;
  return kernels;
}

void GraphStudy::Begin(Replay& replay) {
  calls_.reserve(kMostCalls);
  begin_ = replay.Copy();
  replay.Record(&calls_);
}

void GraphStudy::End(Replay& replay) { replay.Record(nullptr); }

// Whether the recorded calls can be studied. Beside a lease they cannot, since its launches are not seen.
bool GraphStudy::Prepare() {
  double longest_ns = 0;
  for (const Replay::Call& call : calls_) {
    const Replay::Command& command = call.command;
    if (call.kind != Replay::Call::Kind::kAppend && call.kind != Replay::Call::Kind::kAppendGraph) {
      continue;
    }
    if (command.opaque && !command.studied) return false;
    if (command.studied) {
      longest_ns = std::max(longest_ns, static_cast<double>(command.cost_ns));
    }
  }
  clip_ns_ = kClip * longest_ns;
  return clip_ns_ > 0;
}

void GraphStudy::Try(BranchedShape shape, double pace) {
  trial_.emplace(Trial{.shape = std::move(shape), .pace = pace, .replay = *begin_});
}

// Appends the parts of the guess in place of the launch.
void GraphStudy::Launch(const Replay::Call& first) {
  Trial& trial = *trial_;
  ++trial.launches;
  Replay::Call call = first;
  call.command.opaque = false;
  if (trial.shape.branches != nullptr) {
    call.kind = Replay::Call::Kind::kAppendGraph;
    call.shape = std::make_shared<BranchedShape>(trial.shape);
    trial.replay.Repeat(call);
    return;
  }
  call.kind = Replay::Call::Kind::kAppend;
  call.command.parts = static_cast<uint32_t>(trial.shape.kernels.size());
  for (const GraphPart& guess : trial.shape.kernels) {
    call.command.cost_ns = first.command.cost_ns * guess.length;
    call.command.footprint = guess.footprint;
    trial.replay.Repeat(call);
  }
}

// Adds the error of a batch. Batches with commands of guessed cost, or of tenants with a cap, do not count: they say nothing
// about the graph, or a tenant could be late on purpose to have others pay.
void GraphStudy::Score(const Replay::Batch& batch) {
  Trial& trial = *trial_;
  if (trial.launches <= kFirstLaunches || batch.predicted_ns <= 0) return;
  const bool many = graph_.kernels.size() > kFewKernels && graph_.measured.empty();
  if (std::any_of(batch.commands.begin(), batch.commands.end(),
                  [many](const Replay::Command& command) {
                    return command.guess || (many && (command.studied || Fills(command)));
                  })) {
    return;
  }
  constexpr double kMicros = 1e-3;
  const double off = kMicros * std::min(std::fabs(batch.late_ns), clip_ns_);
  trial.error += off * off;
  trial.predicted += kMicros * batch.predicted_ns;
  ++trial.stamps;
}

// Goes on with the trial of the guess. Returns whether it is finished.
bool GraphStudy::Go(size_t& calls) {
  Trial& trial = *trial_;
  for (; trial.at < calls_.size() && calls > 0; ++trial.at, --calls) {
    const Replay::Call& call = calls_[trial.at];
    const bool append = call.kind == Replay::Call::Kind::kAppend;
    if (call.command.studied) {
      Launch(call);
      calls -= std::min(calls - 1, trial.shape.kernels.size());
      continue;
    }
    Replay::Call same = call;
    // The pace is not applied to other graphs, since these were measured alone.
    if (append && call.command.parts <= 1) same.command.cost_ns *= static_cast<float>(trial.pace);
    const std::optional<Replay::Batch> batch = trial.replay.Repeat(same);
    if (batch.has_value() && call.end == Replay::End::kStamped) Score(*batch);
  }
  return trial.at >= calls_.size();
}

// Takes the result of the trial and starts the next one. False: there is none.
bool GraphStudy::Told() {
  if (taken_errors_.size() < kPaces.size()) {
    taken_errors_.push_back(trial_->error);
    stamps_ = trial_->stamps;
    predicted_ = trial_->predicted;
    if (stamps_ < kLeastStamps) return false;
    if (taken_errors_.size() < kPaces.size()) {
      Try({graph_.taken, nullptr}, kPaces[taken_errors_.size()]);
      return true;
    }
    if (IsClose()) return false;
    if (!graph_.measured.empty()) {
      Try({graph_.measured, branches_}, 1);
      return true;
    }
  } else if (!graph_.measured.empty() && !measured_error_.has_value()) {
    measured_error_ = trial_->error;
    if (IsBelieved(*measured_error_)) return false;
  } else {
    search_->Tell(trial_->error);
  }
  const ShapeSearch::Guess* const guess = search_.has_value() ? search_->Next() : nullptr;
  if (guess != nullptr) Try({ShapeOf(*guess), branches_}, guess->pace());
  return guess != nullptr;
}

bool GraphStudy::Step(size_t calls) {
  if (!trial_.has_value()) {
    if (!possible() || !Prepare()) return false;
    Try({graph_.taken, nullptr}, kPaces[0]);
  }
  while (calls > 0) {
    if (!Go(calls)) return true;
    if (Told()) continue;
    Conclude();
    return false;
  }
  return true;
}

bool GraphStudy::IsBelieved(double error) const { return error <= kBelieved * TakenError(); }

bool GraphStudy::IsClose() const {
  const double close = kClose * predicted_ / stamps_;
  return TakenError() < close * close * stamps_;
}

double GraphStudy::TakenError() const {
  return *std::min_element(taken_errors_.begin(), taken_errors_.end());
}

void GraphStudy::Conclude() {
  if (stamps_ < kLeastStamps) return;
  found_.reset();
  if (IsClose()) return;
  if (measured_error_.has_value() && IsBelieved(*measured_error_)) {
    found_ = graph_.measured;
    return;
  }
  if (!search_.has_value()) return;
  const ShapeSearch::Guess& best = search_->best();
  if (IsBelieved(best.error)) found_ = ShapeOf(best);
}

}  // namespace gpushare::meter
