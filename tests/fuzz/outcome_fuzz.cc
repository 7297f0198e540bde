// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as the output of a run's program, in which somebody else's library was loaded: no crash, and a
// proper error. An accepted outcome can be written and read again, and gives the figures of every question. The first
// byte selects the question.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "harness/course.h"
#include "harness/figures.h"
#include "harness/plan.h"
#include "harness/scenario.h"
#include "harness/spans.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

namespace {

namespace harness = gpushare::harness;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

constexpr const char* kTenants[] = {
    "question: share\nCASES{name: a, share: 50%, work: {kernels: 1ms}}, {name: b, share: 50%, "
    "active: 0s-50ms, work: {kernels: "
    "1ms}}]}]",
    "question: cap\nCASES{name: a, cap: 50%, work: {kernels: 1ms}}]}]",
    "question: latency\nCASES{name: a, mode: requests, load: 20%, work: {kernels: 1ms}}, {name: b, "
    "work: {kernels: 1ms}}]}]",
    "question: harvest\nCASES{name: a, priority: high, mode: requests, load: 20%, work: {kernels: "
    "1ms}}, {name: b, work: "
    "{kernels: 1ms}}]}]",
    "question: reclaim\nCASES{name: a, share: 50%, active: 0s-20ms 40ms-60ms, work: {kernels: "
    "1ms}}, {name: b, share: 50%, "
    "work: {kernels: 1ms}}]}]",
    "question: serving\nCASES{name: a, mode: batches, load: 20%, goal: 5ms, batches: {1: {kernels: "
    "1ms}}}, {name: b, work: "
    "{kernels: 1ms}}]}]",
    "question: memory\nCASES{name: a, memory: 1GiB, allocate: {sizes: 1GiB, keep: 2}}]}]",
    "question: faults\nCASES{name: a, work: {kernels: 1ms}, fault: {kind: killed, at: 40ms}}, "
    "{name: b, memory: 1GiB, allocate: "
    "{sizes: 1GiB}, work: {kernels: 1ms}}]}]",
    "question: scale\nCASES{name: a, share: 50%, work: {kernels: 1ms}}, {name: b, share: 50%, "
    "work: {kernels: 1ms}}]}]",
};

std::vector<harness::Scenario> AllScenarios() {
  std::vector<harness::Scenario> all;
  for (std::string text : kTenants) {
    constexpr std::string_view kCases = "CASES";
    text.replace(text.find(kCases), kCases.size(),
                 "length: 100ms\nwarm_up: 10ms\nwindow: 20ms\ncases: [{name: c, tenants: [");
    auto scenario = harness::ParseScenario(text, "s.yaml");
    if (!scenario.ok()) std::fprintf(stderr, "%s\n", scenario.status().ToString().c_str());
    Require(scenario.ok(), "the scenario is good");
    all.push_back(*std::move(scenario));
  }
  return all;
}

// Like the harness: no more tenants than there are, whatever the programs write.
void Tell(const harness::Scenario& scenario, harness::Outcome outcome) {
  const harness::Case& one = scenario.cases.front();
  outcome.tenants.resize(one.tenants.size());
  for (size_t i = 0; i < outcome.tenants.size(); ++i) outcome.tenants[i].name = one.tenants[i].name;
  const std::vector<harness::Figure> figures =
      harness::FiguresOf(scenario, one, outcome, outcome, outcome);
  if (figures.empty()) return;  // the run ended before its warm-up
  harness::CourseOf(scenario, one, outcome, outcome);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<harness::Scenario> kAll = AllScenarios();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto outcome = harness::ParseOutcome(text);
  if (!outcome.ok()) {
    Require(outcome.status().code() == absl::StatusCode::kInvalidArgument, "it is InvalidArgument");
    return 0;
  }
  const auto again = harness::ParseOutcome(harness::FormatOutcome(*outcome));
  Require(again.ok(), "what is written can be read");
  Require(again->tenants.size() == outcome->tenants.size(), "it has as many tenants");
  Tell(kAll[data[0] % kAll.size()], *outcome);
  return 0;
}
