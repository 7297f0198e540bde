// SPDX-License-Identifier: Apache-2.0
// What a run was like over its time and over its requests: for plots, and bounded in size however long the run is.
//
//   result.course = CourseOf(scenario, one_case, outcome, alone);
//
// The figures (figures.h) are what is judged; a course shows where they come from.
#ifndef GPUSHARE_HARNESS_COURSE_H_
#define GPUSHARE_HARNESS_COURSE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "harness/plan.h"
#include "harness/scenario.h"

namespace gpushare::harness {

inline constexpr size_t kMostCourseSteps = 500;
inline constexpr size_t kMostCourseQuantiles = 51;

struct TenantCourse {
  std::string name = {};
  Ask ask = {};
  // % in the windows that begin within each step: the least and the most. Of windows that begin every sample they are
  // the same.
  std::vector<double> low = {}, high = {};
  // % of the windows that count for it (figures.h): the least of those in which it had work, and the most of those in which
  // to have more than it asked for is an error.
  std::optional<double> least = std::nullopt, most = std::nullopt;
  uint64_t requests = 0;  // after the warm-up; those that were not served count as latencies.h says
  // us, at CourseQuantile(0), (1), ...; the last is the greatest.
  std::vector<double> latency_us = {};
  std::vector<double> alone_us = {};  // the same of the requests alone
  bool operator==(const TenantCourse&) const = default;
};

struct Course {
  std::string question = {};  // its name
  bool of_used = false;       // % of what all of them used; else of the time
  Nanos window{0};
  Nanos begins{0};  // the first window
  Nanos step{0};    // from one place in low and high to the next
  std::vector<TenantCourse> tenants = {};
  size_t unnamed = 0;  // tenants: more than kMostTenants are not told of each by itself
  bool operator==(const Course&) const = default;
};

// 0, 0.21, ... 0.9, ... 0.99, ...: ten for each further nine.
double CourseQuantile(size_t index);

// What was asked for, alone: of a run that gave nothing.
Course CourseOf(const Scenario& scenario, const Case& one);
Course CourseOf(const Scenario& scenario, const Case& one, const Outcome& outcome,
                const Outcome& alone);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_COURSE_H_
