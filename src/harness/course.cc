// SPDX-License-Identifier: Apache-2.0
#include "harness/course.h"

#include <algorithm>
#include <cmath>

#include "harness/latencies.h"

namespace gpushare::harness {
namespace {

// As many digits as a plot shows.
double Rounded(double value, double per_one) { return std::round(value * per_one) / per_one; }

// Of the samples `first` and `last`.
double UsedBetween(const TenantOutcome& tenant, size_t first, size_t last) {
  return static_cast<double>(tenant.used_ns[last] - tenant.used_ns[first]);
}

void FillShares(const Scenario& scenario, const Outcome& outcome, Course* course) {
  size_t samples = SIZE_MAX;
  for (const TenantOutcome& tenant : outcome.tenants) {
    samples = std::min(samples, tenant.used_ns.size());
  }
  const auto begin = static_cast<size_t>(scenario.warm_up / kSample);
  const auto length = static_cast<size_t>(scenario.window / kSample);
  if (outcome.tenants.empty() || samples < begin + length + 1) return;
  const size_t windows = samples - begin - length;
  const size_t each = (windows + kMostCourseSteps - 1) / kMostCourseSteps;
  course->step = static_cast<int64_t>(each) * kSample;
  for (size_t w = 0; w < windows; ++w) {
    const size_t first = begin + w, last = first + length;
    double all = static_cast<double>(scenario.window.count());
    if (course->of_used) {
      all = 0;
      for (const TenantOutcome& tenant : outcome.tenants) all += UsedBetween(tenant, first, last);
    }
    for (size_t i = 0; i < std::min(outcome.tenants.size(), course->tenants.size()); ++i) {
      TenantCourse& to = course->tenants[i];
      const double used = UsedBetween(outcome.tenants[i], first, last);
      const double share = Rounded(all > 0 ? 100 * used / all : 0, 100);
      if (w % each == 0) {
        to.low.push_back(share);
        to.high.push_back(share);
      } else {
        to.low.back() = std::min(to.low.back(), share);
        to.high.back() = std::max(to.high.back(), share);
      }
    }
  }
}

std::vector<double> QuantilesOf(const Scenario& scenario, const Outcome& outcome,
                                const std::string& name, uint64_t* requests) {
  std::vector<double> sorted;
  for (const TenantOutcome& tenant : outcome.tenants) {
    if (tenant.name != name) continue;
    for (const double us : LatenciesOf(scenario, tenant).us) sorted.push_back(Rounded(us, 10));
  }
  std::sort(sorted.begin(), sorted.end());
  if (requests != nullptr) *requests = sorted.size();
  std::vector<double> quantiles;
  if (sorted.empty()) return quantiles;
  const auto count = static_cast<double>(sorted.size());
  // Beyond the last nine that so many requests have, there is only the greatest.
  for (size_t i = 0; i + 1 < kMostCourseQuantiles; ++i) {
    const double q = CourseQuantile(i);
    if ((1 - q) * count < 1 - 1e-9) break;
    const double rank = std::max(1.0, std::ceil(q * count - 1e-9));
    quantiles.push_back(sorted[static_cast<size_t>(rank) - 1]);
  }
  quantiles.push_back(sorted.back());
  return quantiles;
}

}  // namespace

double CourseQuantile(size_t index) { return 1 - std::pow(10.0, -static_cast<double>(index) / 10); }

Course CourseOf(const Scenario& scenario, const Case& one) {
  Course course;
  course.question = QuestionName(scenario.question);
  course.of_used = scenario.question == Question::kShare;
  course.window = scenario.window;
  course.begins = scenario.warm_up;
  for (const Tenant& tenant : one.tenants) {
    TenantCourse& to = course.tenants.emplace_back();
    to.name = tenant.name;
    to.ask = tenant.ask;
  }
  return course;
}

Course CourseOf(const Scenario& scenario, const Case& one, const Outcome& outcome,
                const Outcome& alone) {
  Course course = CourseOf(scenario, one);
  FillShares(scenario, outcome, &course);
  for (TenantCourse& tenant : course.tenants) {
    tenant.latency_us = QuantilesOf(scenario, outcome, tenant.name, &tenant.requests);
    tenant.alone_us = QuantilesOf(scenario, alone, tenant.name, nullptr);
  }
  return course;
}

}  // namespace gpushare::harness
