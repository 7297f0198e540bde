// SPDX-License-Identifier: Apache-2.0
#include "harness/turns.h"

#include <random>
#include <utility>

#include "harness/alone.h"
#include "harness/questions/question.h"

namespace gpushare::harness {
namespace {

double RunTakes(const Scenario& scenario) {
  constexpr double kStarting = 0.2;  // s to start its programs
  return kStarting + static_cast<double>(scenario.length.count()) / 1e9;
}

}  // namespace

std::vector<Turn> TurnsOf(const std::vector<Scenario>& scenarios,
                          const std::vector<Method>& methods, const TurnOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<Turn> turns;
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    for (const Scenario& scenario : scenarios) {
      for (const Case& one : scenario.cases) {
        std::vector<const Method*> order;
        order.reserve(methods.size());
        for (const Method& method : methods) order.push_back(&method);
        for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
        bool played[] = {
            false, false};  // whether the runs alone are played; [1]: those that report SM time
        bool played_ungated = false;
        for (const Method* method : order) {
          Turn& turn = turns.emplace_back(Turn{&scenario, &one, method, repetition});
          turn.why_not = WhyNot(*method, one, options.ground);
          if (!turn.why_not.empty()) continue;
          // The native run is the baseline, so it takes place before the first method's.
          const bool ungated = scenario.question->with_ungated;
          const bool natively = ungated && method->kind == Method::Kind::kNative;
          turn.weight = natively ? 0 : RunTakes(scenario);
          if (ungated && !std::exchange(played_ungated, true)) turn.weight += RunTakes(scenario);
          if (std::exchange(played[AloneBySms(scenario, *method) ? 1 : 0], true)) continue;
          turn.weight += static_cast<double>(RunsAlone(scenario, one)) * RunTakes(scenario);
        }
      }
    }
  }
  return turns;
}

}  // namespace gpushare::harness
