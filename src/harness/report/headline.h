// SPDX-License-Identifier: Apache-2.0
// The result of a scenario in plain sentences, for each method.
#ifndef GPUSHARE_HARNESS_REPORT_HEADLINE_H_
#define GPUSHARE_HARNESS_REPORT_HEADLINE_H_

#include <string>
#include <vector>

#include "harness/report/model.h"

namespace gpushare::harness::report {

struct Headline {
  size_t method = 0;     // index in Report::methods
  std::string sentence;  // plain text, not yet escaped
};

// "Does each tenant get what it asks for, in every window of 1s?"; empty if the results do not name the question.
std::string QuestionOf(const ScenarioReport& scenario);

// For every method of the report that the scenario has results of.
std::vector<Headline> HeadlinesOf(const Report& report, const ScenarioReport& scenario);

}  // namespace gpushare::harness::report

#endif  // GPUSHARE_HARNESS_REPORT_HEADLINE_H_
