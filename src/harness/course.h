// SPDX-License-Identifier: Apache-2.0
// The course of a run over time and over its requests, for plots. Its size is bounded, however long the run is.
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
  // The least and greatest share, in %, of the windows that begin within each step. Both are equal if a step is one sample.
  std::vector<double> low = {}, high = {};
  // In %, over the windows that count for the tenant (figures.h): the least share of those in which it had work, and the greatest
  // of those in which a share above what it asked for is an error.
  std::optional<double> least = std::nullopt, most = std::nullopt;
  uint64_t requests = 0;  // after the warm-up; latencies.h tells how unserved ones count
  // Quantiles of the latency in us, at CourseQuantile(0), (1), ...; the last is the maximum.
  std::vector<double> latency_us = {};
  std::vector<double> alone_us = {};  // likewise, with the tenant alone on the device
  bool operator==(const TenantCourse&) const = default;
};

struct Course {
  std::string question = {};  // its name
  bool of_used = false;       // shares are of the time that all tenants used; else of all time
  Nanos window{0};
  Nanos begins{0};  // start of the first window
  Nanos step{0};    // time between consecutive entries of `low` and `high`
  std::vector<TenantCourse> tenants = {};
  size_t unnamed = 0;  // number of tenants beyond kMostTenants, which are left out
  bool operator==(const Course&) const = default;
};

// The quantiles of a course: 0, 0.21, ... 0.9, ... 0.99, ...: ten for each further nine.
double CourseQuantile(size_t index);

// The course of a run without results: only what was asked for.
Course CourseOf(const Scenario& scenario, const Case& one);
Course CourseOf(const Scenario& scenario, const Case& one, const Outcome& outcome,
                const Outcome& alone);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_COURSE_H_
