// SPDX-License-Identifier: Apache-2.0
#include "harness/report/axis.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {
namespace {

constexpr double kLeastLogarithm = 1e-9, kMostValue = 1e300;
constexpr int kMostNines = 9;
// In the units of a plot: the width of a digit of a label, and the least distance between two labels.
constexpr double kDigit = 6.5, kLabelGap = 3;

// The step, 1, 2 or 5 times a power of ten, of which at most six make up `length`.
double RoundStep(double length) {
  const double power = std::pow(10, std::floor(std::log10(length / 6)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power * 6 >= length) return times * power;
  }
  return 10 * power;
}

// "200k", "1.5M": ticks of long numbers would run into each other.
std::string Label(double value) {
  for (const auto& [unit, letter] : {std::pair(1e9, "G"), {1e6, "M"}, {1e3, "k"}}) {
    const bool is_long = std::fabs(value) >= std::max(unit, 1e4) && std::fabs(value) < 1e12;
    if (is_long) return absl::StrCat(value / unit, letter);
  }
  return absl::StrCat(value);
}

double Sane(double value, double least, double most) {
  return std::isfinite(value) ? std::clamp(value, least, most) : least;
}

}  // namespace

Axis::Axis(Kind kind, double least, double most, double from, double to)
    : kind_(kind), from_(from), to_(to) {
  least_ = Bent(least);
  most_ = Bent(most);
}

Axis Axis::Linear(double least, double most, double from, double to) {
  least = Sane(least, -kMostValue, kMostValue);
  most = Sane(most, -kMostValue, kMostValue);
  if (!(most > least)) most = least + std::max(1.0, std::fabs(least));
  const double step = RoundStep(most - least);
  const double first = std::floor(least / step + 1e-9), last = std::ceil(most / step - 1e-9);
  Axis axis(Kind::kLinear, first * step, last * step, from, to);
  // Counts steps instead of adding them up: far from 0 an added step may be lost to rounding.
  for (int i = 0; i <= 12 && first + i <= last; ++i) {
    const double value = (first + i) * step;
    axis.ticks_.push_back({value, Label(std::fabs(value) < step / 2 ? 0 : value)});
  }
  return axis;
}

Axis Axis::Within(double least, double most, double from, double to) {
  Axis axis = Linear(least, most, from, to);
  least = Sane(least, -kMostValue, kMostValue);
  most = Sane(most, -kMostValue, kMostValue);
  if (!(most > least)) return axis;
  axis.least_ = least;
  axis.most_ = most;
  std::erase_if(axis.ticks_,
                [&](const Tick& tick) { return tick.value < least || tick.value > most; });
  return axis;
}

Axis Axis::Logarithmic(double least, double most, double from, double to) {
  least = Sane(least, kLeastLogarithm, kMostValue);
  most = std::max(least, Sane(most, kLeastLogarithm, kMostValue));
  std::vector<double> round;  // 1, 2, 5, 10, 20, ... that enclose the values
  const int first = static_cast<int>(std::floor(std::log10(least)));
  for (int power = first; round.empty() || round.back() < most * (1 - 1e-9); ++power) {
    for (const double times : {1.0, 2.0, 5.0}) {
      const double value = times * std::pow(10, power);
      if (!round.empty() && round.back() >= most * (1 - 1e-9)) break;
      if (value <= least * (1 + 1e-9)) round.clear();
      round.push_back(value);
    }
  }
  if (round.size() < 2) round.push_back(2 * round.back());
  Axis axis(Kind::kLogarithmic, round.front(), round.back(), from, to);
  const double decades = axis.most_ - axis.least_;
  // Labels as many as there is room for: 1, 2, 5; or powers of ten; or some of those.
  const int every = static_cast<int>(std::ceil(decades / 6));
  for (const double value : round) {
    const double power = std::log10(value);
    const bool is_power = std::fabs(power - std::round(power)) < 1e-6;
    if (decades > 2 && !(is_power && (std::lround(power) - first) % every == 0)) continue;
    axis.ticks_.push_back({value, Latency(value)});
  }
  return axis;
}

Axis Axis::Nines(double most, double from, double to) {
  const double nines =
      std::clamp(-std::log10(std::max(1 - Sane(most, 0, 1), 1e-12)), 1.0, double{kMostNines});
  Axis axis(Kind::kNines, 0, 1 - std::pow(10, -nines), from, to);
  axis.ticks_ = {{0, nines > 4 ? "" : "0%"}, {0.5, "50%"}};
  std::string label = "90";
  for (int i = 1; i <= std::floor(nines + 1e-9); ++i) {
    axis.ticks_.push_back({1 - std::pow(10, -i), label + "%"});
    if (i <= 2) {
      label = i == 1 ? "99" : "99.9";
    } else {
      label += "9";
    }
  }
  return axis;
}

Axis Axis::Doubling(const std::vector<double>& values, double from, double to) {
  double least = 1, most = 2;
  if (!values.empty()) {
    least = Sane(*std::min_element(values.begin(), values.end()), 1, kMostValue);
    most = std::max(2 * least, *std::max_element(values.begin(), values.end()));
  }
  Axis axis(Kind::kLogarithmic, least, Sane(most, 2, kMostValue), from, to);
  for (const double value : values) axis.ticks_.push_back({value, Label(value)});
  std::sort(axis.ticks_.begin(), axis.ticks_.end(),
            [](const Tick& a, const Tick& b) { return a.value > b.value; });
  // From the greatest on, those that would run into the label before them have none.
  double room_ends = std::numeric_limits<double>::infinity();
  for (Tick& tick : axis.ticks_) {
    const double half = kDigit * static_cast<double>(tick.label.size()) / 2;
    const double at = axis.At(tick.value);
    if (at + half + kLabelGap > room_ends) {
      tick.label.clear();
    } else {
      room_ends = at - half;
    }
  }
  return axis;
}

double Axis::Bent(double value) const {
  switch (kind_) {
    case Kind::kLinear:
      return value;
    case Kind::kLogarithmic:
      return std::log10(std::max(value, kLeastLogarithm));
    case Kind::kNines:
      return -std::log10(std::max(1 - std::clamp(value, 0.0, 1.0), 1e-12));
  }
  return value;
}

double Axis::At(double value) const {
  if (!std::isfinite(value)) return from_;
  const double part = (Bent(value) - least_) / (most_ - least_);
  return from_ + (to_ - from_) * std::clamp(part, 0.0, 1.0);
}

}  // namespace gpushare::harness::report
