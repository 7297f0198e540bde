// SPDX-License-Identifier: Apache-2.0
// From values to places on a plot, and the values that are written beside it.
#ifndef GPUSHARE_HARNESS_REPORT_AXIS_H_
#define GPUSHARE_HARNESS_REPORT_AXIS_H_

#include <string>
#include <vector>

namespace gpushare::harness::report {

class Axis {
 public:
  struct Tick {
    double value;
    std::string label;
  };

  // `from` is where `least` is drawn, `to` where `most` is; the ends are widened to round values. What is no number is
  // drawn at `from`.
  static Axis Linear(double least, double most, double from, double to);
  // The same with the ends as they are.
  static Axis Within(double least, double most, double from, double to);
  // Of microseconds above 0, each ten times as long at the same distance.
  static Axis Logarithmic(double least, double most, double from, double to);
  // Of parts from 0 to 1 by how many nines they have: 0, 0.9, 0.99, ... at the same distance.
  static Axis Nines(double most, double from, double to);
  // Numbers of things, each twice the one before at the same distance; labelled are those of `values`.
  static Axis Doubling(const std::vector<double>& values, double from, double to);

  double At(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  enum class Kind { kLinear, kLogarithmic, kNines };
  Axis(Kind kind, double least, double most, double from, double to);
  double Bent(double value) const;

  Kind kind_;
  double least_, most_;  // bent
  double from_, to_;
  std::vector<Tick> ticks_;
};

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_AXIS_H_
