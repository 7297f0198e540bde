// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/calls.h"

#include <algorithm>
#include <ctime>

#include "base/status_macros.h"

namespace gpushare::harness {
namespace {

double ThreadTimeNs() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

double MedianOfValues(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

absl::StatusOr<double> Burst(Calls& calls, absl::Status (Calls::*call)(int), int times) {
  const double began = ThreadTimeNs();
  const absl::Status called = (calls.*call)(times);
  const double ended = ThreadTimeNs();
  GPUSHARE_RETURN_IF_ERROR(called);
  GPUSHARE_RETURN_IF_ERROR(calls.Drain());
  return ended - began;
}

}  // namespace

CallCost CostOf(const std::string& call, std::vector<double> mine_ns, std::vector<double> bare_ns,
                int calls_in_burst) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(mine_ns.size(), bare_ns.size()); ++i) {
    if (bare_ns[i] > 0) ratios.push_back(mine_ns[i] / bare_ns[i]);
  }
  CallCost cost;
  cost.call = call;
  cost.ns = MedianOfValues(std::move(mine_ns)) / calls_in_burst;
  cost.bare_ns = MedianOfValues(std::move(bare_ns)) / calls_in_burst;
  cost.ratio = MedianOfValues(std::move(ratios));
  return cost;
}

absl::StatusOr<std::vector<CallCost>> MeasureCalls(Calls& mine, Calls& bare) {
  struct Kind {
    const char* name;
    absl::Status (Calls::*call)(int);
    int in_burst;
  };
  constexpr Kind kKinds[] = {{"launch", &Calls::Launch, 32},
                             {"graph_launch", &Calls::LaunchGraph, 8},
                             {"alloc_free", &Calls::AllocateAndFree, 32}};
  std::vector<CallCost> costs;
  for (const Kind& kind : kKinds) {
    std::vector<double> mine_ns, bare_ns;
    // The first round of each kind warms up and does not count.
    for (int round = 0; round <= kCallRounds; ++round) {
      GPUSHARE_ASSIGN_OR_RETURN(const double with, Burst(mine, kind.call, kind.in_burst));
      GPUSHARE_ASSIGN_OR_RETURN(const double without, Burst(bare, kind.call, kind.in_burst));
      if (round == 0) continue;
      mine_ns.push_back(with);
      bare_ns.push_back(without);
    }
    costs.push_back(CostOf(kind.name, std::move(mine_ns), std::move(bare_ns), kind.in_burst));
  }
  return costs;
}

}  // namespace gpushare::harness
