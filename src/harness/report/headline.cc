// SPDX-License-Identifier: Apache-2.0
#include "harness/report/headline.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "harness/questions/question.h"
#include "harness/report/sentences.h"
#include "spec/text.h"

namespace gpushare::harness::report {
namespace {

// Sentences about runs that failed or are not supported.
std::string OfTheRest(const ScenarioReport& scenario, size_t method) {
  size_t failed = 0, runs = 0, not_supported = 0, cases = 0;
  std::set<std::string> why;
  for (const CaseReport& one : scenario.cases) {
    const Part* const part = PartOf(one, method);
    if (part == nullptr) continue;
    ++cases;
    failed += part->failed;
    runs += part->good + part->failed;
    not_supported += part->not_supported > 0 ? 1 : 0;
    why.insert(part->why.begin(), part->why.end());
  }
  std::string text;
  if (not_supported > 0) {
    absl::StrAppend(&text, "Not supported in ", not_supported, " of ", Count(cases, "case"));
  }
  if (failed > 0) {
    absl::StrAppend(&text, text.empty() ? "" : ". ", failed, " of ", Count(runs, "run"), " failed");
  }
  if (!why.empty()) absl::StrAppend(&text, ": ", absl::StrJoin(why, " / "));
  return text.empty() ? "" : absl::StrCat(text, ".");
}

}  // namespace

std::string QuestionOf(const ScenarioReport& scenario) {
  const Question* const question = FindQuestion(scenario.question);
  if (question == nullptr) return scenario.question;
  return absl::StrReplaceAll(question->asks, {{"%WINDOW%", spec::FormatDuration(scenario.window)}});
}

std::vector<Headline> HeadlinesOf(const Report& report, const ScenarioReport& scenario) {
  const Question* const question = FindQuestion(scenario.question);
  std::vector<Headline> headlines;
  for (size_t method = 0; method < report.methods.size(); ++method) {
    const auto has_it = [method](const CaseReport& one) { return PartOf(one, method) != nullptr; };
    if (std::none_of(scenario.cases.begin(), scenario.cases.end(), has_it)) continue;
    std::string sentence;
    if (question != nullptr && question->told != nullptr)
      sentence = question->told(scenario, method);
    sentence += OfTheRest(scenario, method);
    while (!sentence.empty() && sentence.back() == ' ') sentence.pop_back();
    if (sentence.empty()) sentence = "See the figures.";
    headlines.push_back({method, std::move(sentence)});
  }
  return headlines;
}

}  // namespace gpushare::harness::report
