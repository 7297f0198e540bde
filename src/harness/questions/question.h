// SPDX-License-Identifier: Apache-2.0
// What a scenario may ask, and all that is particular to it. A question is one source of this folder and a line in
// questions.def.
//
//   const Question* question = FindQuestion("share");  // null: none is called that
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

// A key of a scenario, or of its cases, that one question has beside those that all have. Its value is a number of
// Settings: what a unit is, `read` decides, which also says what is allowed.
struct OwnKey {
  enum class Of { kScenario, kCase };
  const char* name;
  Of of = Of::kScenario;
  std::function<absl::Status(const yaml::Reader& in, const yaml::Node& value,
                             const std::string& place, double* out)>
      read;
  double otherwise = 0;  // where it is not given
};

// What came of one run by the programs of stage/.
struct Played {
  const Scenario& scenario;
  const Case& one;
  const Outcome& outcome;
  const Outcome&
      alone;  // of each tenant that serves requests by itself, where the question wants that; else of nobody
  const Outcome& ungated;  // of all tenants natively, where the question wants that; else of nobody
  const Windows& windows;
};

// A figure in words: by its whole name, or of a tenant's by what follows the tenant, as ".share".
struct FigureTitle {
  const char* name;
  const char* words;
};

struct Question {
  const char* name;
  const char* asks;  // in a report; %WINDOW% stands for the scenario's window

  std::vector<OwnKey> keys = {};
  // Of the keys of tenants those that only some questions have: memory, allocate, fault, isolation, count.
  std::vector<std::string_view> tenant_keys = {};
  bool has_tenants = true;  // false: its cases may have none
  size_t most_tenants = kMostTenants;
  // What is wrong with a case beside what is with any; empty: nothing.
  std::string (*check)(const Scenario& scenario, const Case& one) = nullptr;

  bool with_alone =
      false;  // each tenant that serves requests is played by itself as well (alone.h)
  bool each_alone = false;    // the same of every tenant
  bool with_ungated = false;  // all tenants are played natively as well
  bool tolerant = false;      // one that fails is what is asked about: the others go on
  bool calls = false;         // what calls cost the host is measured
  bool of_time = true;        // what tenants had of the device's time is shown
  bool of_used = false;       // shares are of what all tenants used; else of the time
  std::optional<double> Ask::*asked = &Ask::share;  // what those shares are held against

  // How often what tenants have had is asked beside kSample, of which it is a part; 0: never. In Outcome's fine_ns.
  Nanos fine{0};
  bool fine_of_others = false;  // of tenants without requests alone

  // Whether it is asked at the warm-up's end and the run's alone, and held to be the same in between: of thousands of
  // tenants, asking more often would be most of what a run does.
  bool sparse = false;

  // Of a run with samples after the warm-up.
  void (*figures)(const Played& played, std::vector<Figure>* figures) = nullptr;
  std::vector<FigureTitle> titles = {};
  // What a method came to over all cases, in sentences that each end in ". "; empty: nothing is to be said.
  std::string (*told)(const report::ScenarioReport& scenario, size_t method) = nullptr;
};

const std::vector<const Question*>& Questions();
const Question* FindQuestion(std::string_view name);
// What a figure is called in words, whichever question gives it; empty: none says.
std::string FigureWords(const std::string& figure);

#define GPUSHARE_QUESTION(Name) const Question& Name##Question();
#include "harness/questions/questions.def"
#undef GPUSHARE_QUESTION

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_QUESTION_H_
