// SPDX-License-Identifier: Apache-2.0
#include "harness/figures.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/run.h"
#include "harness/statistics.h"

namespace gpushare::harness {
namespace {

using Better = Figure::Better;

// Of samples, which begin with the time 0.
struct Span {
  size_t first, last;
  double ns() const { return static_cast<double>((last - first) * kSample.count()); }
};

double Used(const TenantOutcome& tenant, Span span) {
  return static_cast<double>(tenant.used_ns[span.last] - tenant.used_ns[span.first]);
}

double UsedByAll(const Outcome& outcome, Span span) {
  double sum = 0;
  for (const TenantOutcome& tenant : outcome.tenants) sum += Used(tenant, span);
  return sum;
}

class Calculation {
 public:
  Calculation(const Scenario& scenario, const Case& one, const Outcome& outcome,
              const Outcome& alone)
      : scenario_(scenario), case_(one), outcome_(outcome), alone_(alone) {
    size_t samples = SIZE_MAX;
    for (const TenantOutcome& tenant : outcome.tenants) {
      samples = std::min(samples, tenant.used_ns.size());
    }
    measured_ = {static_cast<size_t>(scenario.warm_up / kSample),
                 samples == SIZE_MAX ? 0 : samples - std::min<size_t>(samples, 1)};
    measured_.first = std::min(measured_.first, measured_.last);
  }

  std::vector<Figure> Do() {
    if (measured_.first == measured_.last) return {};
    switch (scenario_.question) {
      case Question::kShare:
        Shares();
        break;
      case Question::kCap:
        Caps();
        break;
      case Question::kLatency:
        Latencies();
        break;
    }
    return std::move(figures_);
  }

 private:
  void Add(std::string name, const char* unit, double value, Better better = Better::kNeither) {
    figures_.push_back({std::move(name), unit, value, better});
  }

  template <typename Body>
  void EachWindow(const Body& body) const {
    const auto length = static_cast<size_t>(scenario_.window / kSample);
    for (size_t first = measured_.first; first + length <= measured_.last; ++first) {
      body(Span{first, first + length});
    }
  }

  void Shares() {
    const double all = UsedByAll(outcome_, measured_);
    double worst = 0;
    for (size_t i = 0; i < outcome_.tenants.size(); ++i) {
      const TenantOutcome& tenant = outcome_.tenants[i];
      Add(tenant.name + ".share", "%", all > 0 ? 100 * Used(tenant, measured_) / all : 0);
      const double asked = case_.tenants[i].ask.share.value_or(0);
      EachWindow([&](Span window) {
        const double used = UsedByAll(outcome_, window);
        if (used > 0) worst = std::max(worst, std::fabs(Used(tenant, window) / used - asked));
      });
    }
    Add("worst_error", "pp", 100 * worst, Better::kLower);
    Add("busy", "%", 100 * all / measured_.ns(), Better::kHigher);
  }

  void Caps() {
    double over = 0, under = 0;
    for (size_t i = 0; i < outcome_.tenants.size(); ++i) {
      const TenantOutcome& tenant = outcome_.tenants[i];
      Add(tenant.name + ".share", "%", 100 * Used(tenant, measured_) / measured_.ns());
      const double cap = case_.tenants[i].ask.cap.value_or(1);
      EachWindow([&](Span window) {
        const double had = Used(tenant, window) / window.ns();
        over = std::max(over, had - cap);
        under = std::max(under, cap - had);
      });
    }
    Add("worst_over", "pp", 100 * over, Better::kLower);
    Add("worst_under", "pp", 100 * under, Better::kLower);
  }

  std::vector<double> LatenciesOf(const TenantOutcome& tenant) const {
    std::vector<double> latencies;
    for (const player::Request& request : tenant.requests) {
      if (request.arrival < scenario_.warm_up) continue;
      latencies.push_back(static_cast<double>(request.latency.count()) / 1e3);
    }
    return latencies;
  }

  void Latencies() {
    for (size_t i = 0; i < outcome_.tenants.size(); ++i) {
      const TenantOutcome& tenant = outcome_.tenants[i];
      if (case_.tenants[i].mode != player::PlayMode::kOpenLoop) {
        Add(tenant.name + ".share", "%", 100 * Used(tenant, measured_) / measured_.ns(),
            Better::kHigher);
        continue;
      }
      const std::vector<double> latencies = LatenciesOf(tenant);
      constexpr std::pair<const char*, double> kQuantiles[] = {
          {".p50", 0.5}, {".p95", 0.95}, {".p99", 0.99}, {".p999", 0.999}};
      for (const auto& [name, q] : kQuantiles) {
        Add(tenant.name + name, "us", Quantile(latencies, q), Better::kLower);
      }
      for (const TenantOutcome& by_itself : alone_.tenants) {
        const double p99 = Quantile(LatenciesOf(by_itself), 0.99);
        if (by_itself.name != tenant.name || p99 == 0) continue;
        Add(tenant.name + ".p99_ratio", "x", Quantile(latencies, 0.99) / p99, Better::kLower);
      }
    }
  }

  const Scenario& scenario_;
  const Case& case_;
  const Outcome& outcome_;
  const Outcome& alone_;
  Span measured_{};
  std::vector<Figure> figures_;
};

}  // namespace

std::vector<Figure> FiguresOf(const Scenario& scenario, const Case& one, const Outcome& outcome,
                              const Outcome& alone) {
  return Calculation(scenario, one, outcome, alone).Do();
}

}  // namespace gpushare::harness
