// SPDX-License-Identifier: Apache-2.0
#include "harness/course.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/latencies.h"
#include "harness/questions/question.h"
#include "harness/windows.h"

namespace gpushare::harness {
namespace {

// Rounds to the precision that a plot can show.
double Rounded(double value, double per_one) { return std::round(value * per_one) / per_one; }

void Widen(double share, std::optional<double>* least, std::optional<double>* most) {
  if (least != nullptr) *least = std::min(least->value_or(share), share);
  if (most != nullptr) *most = std::max(most->value_or(share), share);
}

void FillShares(const Scenario& scenario, const Case& one, const Outcome& outcome, Course* course) {
  const Windows windows(scenario, one, outcome);
  if (windows.count() == 0) return;
  const size_t each = (windows.count() + kMostCourseSteps - 1) / kMostCourseSteps;
  course->step = static_cast<int64_t>(each) * kSample;
  size_t number = 0;
  windows.Each([&](Span window) {
    const bool begins_a_step = number++ % each == 0;
    const double all = course->of_used ? UsedByAll(outcome, window) : window.ns();
    for (size_t i = 0; i < outcome.tenants.size(); ++i) {
      TenantCourse& to = course->tenants[i];
      const double used = Used(outcome.tenants[i], window);
      const double share = Rounded(all > 0 ? 100 * used / all : 0, 100);
      if (begins_a_step) {
        to.low.push_back(share);
        to.high.push_back(share);
      } else {
        to.low.back() = std::min(to.low.back(), share);
        to.high.back() = std::max(to.high.back(), share);
      }
      // As in the figures: a cap holds whether others have work or not.
      const bool had_work = windows.HadWork(i, window) && all > 0;
      const bool may_be_too_much = course->of_used ? had_work && windows.AllHadWork(window) : true;
      Widen(share, had_work ? &to.least : nullptr, may_be_too_much ? &to.most : nullptr);
    }
  });
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
  // Quantiles that this number of requests cannot resolve are left out; the maximum follows.
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
  course.question = scenario.question->name;
  course.of_used = scenario.question->of_used;
  course.window = scenario.window;
  course.begins = scenario.warm_up;
  if (one.tenants.size() > kMostTenants) {
    course.unnamed = one.tenants.size();
    return course;
  }
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
  if (scenario.question->of_time) FillShares(scenario, one, outcome, &course);
  for (TenantCourse& tenant : course.tenants) {
    tenant.latency_us = QuantilesOf(scenario, outcome, tenant.name, &tenant.requests);
    tenant.alone_us = QuantilesOf(scenario, alone, tenant.name, nullptr);
  }
  return course;
}

}  // namespace gpushare::harness
