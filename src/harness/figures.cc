// SPDX-License-Identifier: Apache-2.0
#include "harness/figures.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "harness/latencies.h"
#include "harness/statistics.h"
#include "harness/windows.h"

namespace gpushare::harness {
namespace {

using Better = Figure::Better;

class Calculation {
 public:
  Calculation(const Scenario& scenario, const Case& one, const Outcome& outcome,
              const Outcome& alone)
      : scenario_(scenario),
        case_(one),
        outcome_(outcome),
        alone_(alone),
        windows_(scenario, one, outcome),
        measured_(windows_.measured()) {}

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
  void Add(std::string name, const char* unit, std::optional<double> value,
           Better better = Better::kNeither) {
    figures_.push_back({std::move(name), unit, value, better});
  }

  static std::optional<double> Percent(const std::optional<double>& part) {
    return part.has_value() ? std::optional<double>(100 * *part) : std::nullopt;
  }

  void Shares() {
    const double all = UsedByAll(outcome_, measured_);
    std::optional<double> worst;
    for (size_t i = 0; i < outcome_.tenants.size(); ++i) {
      const TenantOutcome& tenant = outcome_.tenants[i];
      std::optional<double> share;
      if (all > 0) share = 100 * Used(tenant, measured_) / all;
      Add(tenant.name + ".share", "%", share);
      const double asked = case_.tenants[i].ask.share.value_or(0);
      windows_.Each([&](Span window) {
        const double used = UsedByAll(outcome_, window);
        if (used <= 0 || !windows_.HadWork(i, window)) return;
        const double over = Used(tenant, window) / used - asked;
        const double error = windows_.AllHadWork(window) ? std::fabs(over) : std::max(0.0, -over);
        worst = std::max(worst.value_or(0), error);
      });
    }
    Add("worst_error", "pp", Percent(worst), Better::kLower);
    Add("busy", "%", 100 * all / measured_.ns(), Better::kHigher);
  }

  void Caps() {
    std::optional<double> over, under;
    for (size_t i = 0; i < outcome_.tenants.size(); ++i) {
      const TenantOutcome& tenant = outcome_.tenants[i];
      Add(tenant.name + ".share", "%", 100 * Used(tenant, measured_) / measured_.ns());
      const double cap = case_.tenants[i].ask.cap.value_or(1);
      windows_.Each([&](Span window) {
        const double had = Used(tenant, window) / window.ns();
        over = std::max(over.value_or(0), had - cap);
        if (windows_.HadWork(i, window)) under = std::max(under.value_or(0), cap - had);
      });
    }
    Add("worst_over", "pp", Percent(over), Better::kLower);
    Add("worst_under", "pp", Percent(under), Better::kLower);
  }

  void Latencies() {
    for (size_t i = 0; i < outcome_.tenants.size(); ++i) {
      const TenantOutcome& tenant = outcome_.tenants[i];
      if (case_.tenants[i].mode != player::PlayMode::kOpenLoop) {
        Add(tenant.name + ".share", "%", 100 * Used(tenant, measured_) / measured_.ns(),
            Better::kHigher);
        continue;
      }
      const auto [latencies, served] = LatenciesOf(scenario_, tenant);
      constexpr std::pair<const char*, double> kQuantiles[] = {
          {".p50", 0.5}, {".p95", 0.95}, {".p99", 0.99}, {".p999", 0.999}};
      for (const auto& [name, q] : kQuantiles) {
        Add(tenant.name + name, "us", Quantile(latencies, q), Better::kLower);
      }
      std::optional<double> part;
      if (!latencies.empty()) {
        part = 100 * static_cast<double>(served) / static_cast<double>(latencies.size());
      }
      Add(tenant.name + ".served", "%", part, Better::kHigher);
      for (const TenantOutcome& by_itself : alone_.tenants) {
        if (by_itself.name != tenant.name) continue;
        const std::optional<double> p99 = Quantile(LatenciesOf(scenario_, by_itself).us, 0.99);
        std::optional<double> ratio;
        if (p99.value_or(0) > 0 && !latencies.empty()) ratio = *Quantile(latencies, 0.99) / *p99;
        Add(tenant.name + ".p99_ratio", "x", ratio, Better::kLower);
      }
    }
  }

  const Scenario& scenario_;
  const Case& case_;
  const Outcome& outcome_;
  const Outcome& alone_;
  const Windows windows_;
  const Span measured_;
  std::vector<Figure> figures_;
};

}  // namespace

std::vector<Figure> FiguresOf(const Scenario& scenario, const Case& one, const Outcome& outcome,
                              const Outcome& alone) {
  return Calculation(scenario, one, outcome, alone).Do();
}

}  // namespace gpushare::harness
