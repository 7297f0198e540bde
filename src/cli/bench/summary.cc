// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/summary.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "harness/report/headline.h"
#include "harness/report/model.h"

namespace gpushare::cli {

std::string SummaryText(const harness::Results& results) {
  namespace report = harness::report;
  constexpr size_t kLongest = 1000;
  const std::vector<report::Given> given = {{"", results}};
  const report::Report made = report::ReportOf(given);
  std::string text;
  for (const report::ScenarioReport& scenario : made.scenarios) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", Printable(scenario.name, kLongest), ": ",
                    Printable(report::QuestionOf(scenario), kLongest), "\n");
    for (const report::Headline& told : report::HeadlinesOf(made, scenario)) {
      absl::StrAppend(&text, "  ", Printable(made.methods[told.method], kLongest), ": ",
                      Printable(told.sentence, kLongest), "\n");
    }
  }
  return text;
}

}  // namespace gpushare::cli
