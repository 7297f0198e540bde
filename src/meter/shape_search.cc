// SPDX-License-Identifier: Apache-2.0
#include "meter/shape_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace gpushare::meter {
namespace {

// The starts: equal lengths; each kind in turn kOneLonger times as long as the others; and kRandomStarts of random lengths, whose
// logarithms have a standard deviation of kApart.
constexpr std::array<double, 2> kOneLonger = {4, 12};
constexpr int kRandomStarts = 24;
constexpr double kApart = 1.2;
// The best kBettered starts are improved in steps from kFirstStep down to kMiddleStep, then the best of these down to kLastStep.
constexpr size_t kBettered = 5;
constexpr double kFirstStep = 3, kMiddleStep = 1.65, kLastStep = 1.1;
// Each step is this root of the one before.
constexpr double kNarrower = 1.7;
constexpr int kMostSweeps = 3;
// Another shape replaces the one that was found before if its error is at most this part of that one's.
constexpr double kClearly = 0.8;
// Steps of the pace and of the footprint, which are known better than the lengths, as parts of a step.
constexpr double kPaceStep = 1.0 / 6, kFootprintStep = 1.0 / 3;
constexpr float kMostPace = 0.35f;
// Costs that were learnt beside a graph of the wrong shape are mostly too long, so half of the random starts begin with this
// logarithm of the pace.
constexpr float kUsualPace = -0.18f;
// The starts for a graph whose kernels are not known.
constexpr std::array<uint32_t, 5> kParts = {2, 3, 4, 6, 8};
constexpr std::array<float, 12> kFootprints = {0.1f, 0.15f, 0.25f, 0.35f, 0.45f, 0.55f,
                                               0.7f, 1,     1.5f,  2,     2.5f,  3};

// Nearly normal deviates, always the same sequence.
class Deviates {
 public:
  double Next() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<double>(state_ >> 11) * 0x1p-53;
    }
    return sum;
  }

 private:
  uint64_t state_ = 12345;
};

}  // namespace

double ShapeSearch::Guess::pace() const { return std::exp(static_cast<double>(logs.back())); }

GraphShape ShapeSearch::Guess::ShapeOf(const Kernels& kernels) const {
  GraphShape shape;
  if (kernels.empty()) {
    const float footprint = std::exp(logs[logs.size() - 2]);
    for (size_t i = 0; i + 2 < logs.size(); ++i) shape.push_back({std::exp(logs[i]), footprint});
  }
  for (const Kernel& kernel : kernels) {
    shape.push_back({std::exp(logs[kernel.kind]), kernel.footprint});
  }
  float sum = 0;
  for (const GraphPart& part : shape) sum += part.length;
  for (GraphPart& part : shape) part.length /= sum;
  return shape;
}

std::vector<ShapeSearch::Guess> ShapeSearch::Starts(const Kernels& kernels, const GraphShape& now) {
  std::vector<Guess> starts;
  if (kernels.empty()) {
    for (const uint32_t parts : kParts) {
      for (const float footprint : kFootprints) {
        Guess guess;
        guess.logs.assign(parts, 0);
        guess.logs.push_back(std::log(footprint));
        guess.logs.push_back(0);
        starts.push_back(std::move(guess));
      }
    }
    if (now.empty()) return starts;
    Guess guess;
    guess.before = true;
    for (const GraphPart& part : now) guess.logs.push_back(std::log(part.length));
    guess.logs.push_back(std::log(now.front().footprint));
    guess.logs.push_back(0);
    starts.push_back(std::move(guess));
    return starts;
  }
  uint32_t kinds = 0;
  for (const Kernel& kernel : kernels) kinds = std::max(kinds, kernel.kind + 1);
  Guess equal;
  equal.logs.assign(kinds + 1, 0);
  starts.push_back(equal);
  if (now.size() == kernels.size()) {
    Guess before = equal;
    before.before = true;
    for (size_t i = 0; i < now.size(); ++i) before.logs[kernels[i].kind] = std::log(now[i].length);
    starts.push_back(std::move(before));
  }
  for (const double longer : kOneLonger) {
    for (size_t k = 0; k < kinds && kinds > 1; ++k) {
      Guess guess = equal;
      guess.logs[k] = static_cast<float>(std::log(longer));
      starts.push_back(std::move(guess));
    }
  }
  Deviates deviates;
  for (int i = 0; i < kRandomStarts && kinds > 1; ++i) {
    Guess guess = equal;
    for (size_t k = 0; k < kinds; ++k) guess.logs[k] = static_cast<float>(kApart * deviates.Next());
    if (i % 2 != 0) guess.logs.back() = kUsualPace;
    starts.push_back(std::move(guess));
  }
  return starts;
}

ShapeSearch::ShapeSearch(const Kernels& kernels, std::vector<Guess> starts)
    : unknown_(kernels.empty()), guesses_(std::move(starts)) {
  tried_ = guesses_.front();
}

const ShapeSearch::Guess& ShapeSearch::best() const {
  const Guess& last = guesses_.back();
  return last.before && guesses_.front().error > kClearly * last.error ? last : guesses_.front();
}

// Keeps the best `most` guesses, the best first, and behind them the one that started from the shape found before.
void ShapeSearch::KeepBest(size_t most) {
  std::stable_sort(guesses_.begin(), guesses_.end(), [](const Guess& a, const Guess& b) {
    return a.before == b.before ? a.error < b.error : b.before;
  });
  const bool before = guesses_.back().before;
  if (guesses_.size() > most + (before ? 1 : 0)) {
    if (before) std::swap(guesses_[most], guesses_.back());
    guesses_.resize(most + (before ? 1 : 0));
  }
}

void ShapeSearch::Tell(double error) {
  if (told_ < guesses_.size()) {
    guesses_[told_++].error = error;
    if (told_ < guesses_.size()) {
      tried_ = guesses_[told_];
      return;
    }
    KeepBest(kBettered);
    told_ = guesses_.size();
    Descend(0, kFirstStep, kMiddleStep);
    return;
  }
  Guess& guess = guesses_[at_];
  if (error < guess.error) {
    guess.logs = tried_.logs;
    guess.error = error;
    bettered_ = true;
    down_ = true;  // the other direction is worse, so it is not tried
  }
  Step();
}

void ShapeSearch::Descend(size_t index, double from, double to) {
  at_ = index;
  step_ = std::log(from);
  last_ = std::log(to);
  sweeps_ = 0;
  bettered_ = false;
  place_ = 0;
  down_ = false;
  Try();
}

// Descends from the next guess: first from all but the one found before, in large steps; then from the best of these and the
// one found before, in small steps.
void ShapeSearch::DescendNext() {
  const bool small = last_ < std::log(kMiddleStep);
  const size_t next = at_ + 1;
  if (next < guesses_.size() && (small || !guesses_[next].before)) {
    return small ? Descend(next, kMiddleStep, kLastStep) : Descend(next, kFirstStep, kMiddleStep);
  }
  over_ = small;
  if (over_) return;
  KeepBest(1);
  told_ = guesses_.size();
  Descend(0, kMiddleStep, kLastStep);
}

double ShapeSearch::StepOf(size_t place) const {
  const size_t places = guesses_[at_].logs.size();
  if (place + 1 == places) return step_ * kPaceStep;
  if (unknown_ && place + 2 == places) return step_ * kFootprintStep;
  return step_;
}

void ShapeSearch::Try() {
  tried_ = guesses_[at_];
  if (const size_t places = tried_.logs.size(); place_ >= places) {
    std::swap(tried_.logs[place_ - places], tried_.logs[place_ - places + 1]);
    return;
  }
  const double by = StepOf(place_);
  tried_.logs[place_] += static_cast<float>(down_ ? -by : by);
  if (std::fabs(tried_.logs.back()) > kMostPace) Step();
}

// Goes on to the next place or step, and tries it.
void ShapeSearch::Step() {
  const size_t places = guesses_[at_].logs.size();
  if (!down_ && place_ < places) {
    down_ = true;
    return Try();
  }
  down_ = false;
  // The order of parts that was found before is not changed by swaps.
  const size_t lengths = places - (unknown_ ? 2 : 1);
  const size_t swaps = guesses_[at_].before ? 0 : lengths - 1;
  if (++place_ < places + swaps) return Try();
  place_ = 0;
  if (!std::exchange(bettered_, false) || ++sweeps_ >= kMostSweeps) {
    sweeps_ = 0;
    step_ /= kNarrower;
  }
  if (step_ > last_) return Try();
  DescendNext();
}

}  // namespace gpushare::meter
