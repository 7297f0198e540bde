// SPDX-License-Identifier: Apache-2.0
// The questions that a scenario may ask, and everything that is specific to each. A question is one source file in this folder and
// a line in questions.def.
//
//   const Question* question = FindQuestion("share");  // null: unknown
//   question->figures({scenario, one_case, outcome, alone, ungated, windows}, &figures);
#ifndef GPUSHARE_HARNESS_QUESTIONS_QUESTION_H_
#define GPUSHARE_HARNESS_QUESTIONS_QUESTION_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "harness/figures.h"
#include "harness/plan.h"
#include "harness/scenario.h"
#include "harness/windows.h"
#include "yaml/reader.h"

namespace gpushare::harness {

namespace report {
struct ScenarioReport;
}  // namespace report

// A key of a scenario, or of its cases, that only one question has. Its value is a number in Settings; `read` decides about its unit
// and range.
struct OwnKey {
  enum class Of { kScenario, kCase };
  const char* name;
  Of of = Of::kScenario;
  std::function<absl::Status(const yaml::Reader& in, const yaml::Node& value,
                             const std::string& place, double* out)>
      read;
  double otherwise = 0;  // the default
};

// The result of one run by the programs of stage/.
struct Played {
  const Scenario& scenario;
  const Case& one;
  const Outcome& outcome;
  const Outcome&
      alone;  // by tenant: its outcome alone, if the question wants that (with_alone, each_alone); else empty
  const Outcome& ungated;  // the native run of all tenants, if the question wants that; else empty
  const Windows& windows;
};

// The title of a figure: by its whole name or, for a tenant's figure, by the suffix behind the tenant, such as ".share".
struct FigureTitle {
  const char* name;
  const char* words;
};

struct Question {
  const char* name;
  const char*
      asks;  // the question in words, for a report; %WINDOW% stands for the scenario's window

  std::vector<OwnKey> keys = {};
  // The optional tenant keys that it allows, of: memory, allocate, fault, isolation, count.
  std::vector<std::string_view> tenant_keys = {};
  bool has_tenants = true;  // false: its cases may be without tenants
  size_t most_tenants = kMostTenants;
  // What is wrong with a case for this question; empty if nothing is.
  std::string (*check)(const Scenario& scenario, const Case& one) = nullptr;

  bool with_alone = false;    // also play each request-serving tenant alone (alone.h)
  bool each_alone = false;    // also play every tenant alone
  bool with_ungated = false;  // also play all tenants natively
  bool tolerant = false;      // a failing tenant is part of the question: the others go on
  bool calls = false;         // measure what calls cost the host
  bool of_time = true;        // show the tenants' parts of the device's time
  bool of_used = false;       // shares are of the time that all tenants used; else of all time
  std::optional<double> Ask::*asked = &Ask::share;  // the request that shares are compared with

  // Interval of the additional samples in fine_ns, a divisor of kSample; 0: none.
  Nanos fine{0};
  bool fine_of_others = false;  // take them only of tenants without requests

  // Take samples only at the end of the warm-up and of the run, and use the former for all times in between. With thousands of
  // tenants, sampling more often would dominate a run.
  bool sparse = false;

  // Computes the figures of a run that has samples after the warm-up.
  void (*figures)(const Played& played, std::vector<Figure>* figures) = nullptr;
  std::vector<FigureTitle> titles = {};
  // Sentences about a method over all cases, each ending in ". "; may be empty.
  std::string (*told)(const report::ScenarioReport& scenario, size_t method) = nullptr;
};

const std::vector<const Question*>& Questions();
const Question* FindQuestion(std::string_view name);
// The title of a figure of any question; empty if it has none.
std::string FigureWords(const std::string& figure);

#define GPUSHARE_QUESTION(Name) const Question& Name##Question();
#include "harness/questions/questions.def"
#undef GPUSHARE_QUESTION

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_QUESTION_H_
