// SPDX-License-Identifier: Apache-2.0
// Maps values to positions on a plot, and chooses the labelled values.
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

  // `least` is drawn at `from`, and `most` at `to`; the ends are widened to round values. A NaN is drawn at `from`.
  static Axis Linear(double least, double most, double from, double to);
  // Linear() without widening.
  static Axis Within(double least, double most, double from, double to);
  // A logarithmic axis of microseconds above 0.
  static Axis Logarithmic(double least, double most, double from, double to);
  // An axis of fractions from 0 to 1 with 0, 0.9, 0.99, ... at equal distances.
  static Axis Nines(double most, double from, double to);
  // A base-2 logarithmic axis of counts; the labels are `values`.
  static Axis Doubling(const std::vector<double>& values, double from, double to);

  double At(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  enum class Kind { kLinear, kLogarithmic, kNines };
  Axis(Kind kind, double least, double most, double from, double to);
  double Bent(double value) const;

  Kind kind_;
  double least_, most_;  // on the transformed scale
  double from_, to_;
  std::vector<Tick> ticks_;
};

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_AXIS_H_
