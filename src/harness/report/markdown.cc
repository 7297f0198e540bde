// SPDX-License-Identifier: Apache-2.0
#include "harness/report/markdown.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "harness/report/headline.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {
namespace {

// Escapes `text` so that none of it is Markdown, HTML or the end of a table cell.
std::string Plain(std::string_view text) {
  std::string plain;
  for (const char c : Printable(text, 1000)) {
    if (c == '&') {
      plain += "&amp;";
    } else if (c == '<') {
      plain += "&lt;";
    } else if (absl::StrContains("\\`*_[>#|~$@", c)) {
      absl::StrAppend(&plain, "\\", std::string(1, c));
    } else {
      plain += c;
    }
  }
  return plain;
}

void AppendSources(const Report& report, std::string* to) {
  *to +=
      "| results | date | GPU | driver | machine | gpushare | commit | seed | runs |\n"
      "|---|---|---|---|---|---|---|---:|---:|\n";
  const auto known = [](const std::string& text) {
    return text.empty() ? std::string("not recorded") : Plain(text);
  };
  for (const Given& given : report.given) {
    const Circumstances& in = given.results.circumstances;
    absl::StrAppend(to, "| ", known(given.file), " | ", known(in.begun), " | ", known(in.gpu),
                    " | ", known(DriverOf(in) + (in.clocks.empty() ? "" : "; " + in.clocks)), " | ",
                    known(in.machine), " | ", known(in.version));
    absl::StrAppend(to, " | ", known(in.commit), " | ", in.seed, " | ", given.results.runs.size(),
                    " |\n");
  }
}

void AppendCase(const Report& report, const CaseReport& one, std::string* to) {
  absl::StrAppend(to, "\n### ", Plain(one.name), "\n\n| figure | unit |");
  for (const Part& part : one.parts) {
    absl::StrAppend(to, " ", Plain(report.methods[part.method]), " |");
  }
  *to += "\n|---|---|";
  for (size_t i = 0; i < one.parts.size(); ++i) *to += "---:|";
  *to += "\n";
  for (const Row& row : one.rows) {
    absl::StrAppend(to, "| ", Plain(TitleOf(row)), " | ", Plain(UnitName(row.unit)), " |");
    for (const Part& part : one.parts) {
      const auto found = row.by_method.find(part.method);
      const bool there = found != row.by_method.end();
      absl::StrAppend(to, " ", there ? IntervalIn(row.unit, found->second) : MissingOf(part), " |");
    }
    *to += "\n";
  }
  *to += "| runs with figures | |";
  for (const Part& part : one.parts) {
    absl::StrAppend(to, " ", part.good, " of ", part.good + part.failed + part.not_supported, " |");
  }
  *to += "\n";
}

}  // namespace

std::string MarkdownOf(const Report& report) {
  std::string text = "# Sharing a GPU: what was asked for, and what came of it\n\n";
  AppendSources(report, &text);
  if (report.scenarios.empty()) text += "\nThere are no runs in these results.\n";
  for (const ScenarioReport& scenario : report.scenarios) {
    absl::StrAppend(&text, "\n## ", Plain(scenario.name), "\n\n");
    if (const std::string question = QuestionOf(scenario); !question.empty()) {
      absl::StrAppend(&text, Plain(question), "\n\n");
    }
    for (const Headline& told : HeadlinesOf(report, scenario)) {
      absl::StrAppend(&text, "- **", Plain(report.methods[told.method]),
                      "**: ", Plain(told.sentence), "\n");
    }
    for (const CaseReport& one : scenario.cases) AppendCase(report, one, &text);
  }
  if (!report.scenarios.empty()) absl::StrAppend(&text, "\n", kHowToRead, "\n");
  return text;
}

}  // namespace gpushare::harness::report
