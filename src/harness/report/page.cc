// SPDX-License-Identifier: Apache-2.0
#include "harness/report/page.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "harness/report/headline.h"
#include "harness/report/plots.h"
#include "harness/report/svg.h"
#include "harness/report/words.h"

namespace gpushare::harness::report {
namespace {

constexpr double kCellEms = 64;  // wider than any name that a scenario may have

// Keeps a number and its percent sign on one line.
std::string Unbroken(const std::string& sentence) {
  return absl::StrReplaceAll(sentence, {{" %", "\u00a0%"}});
}

class PageWriter {
 public:
  explicit PageWriter(const Report& report) : report_(report) {}

  std::string Write() {
    Put("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        // Names in the results are untrusted: the policy forbids scripts and all loading.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'\">\n<title>gpushare bench: report</title>\n<style>",
        kPageStyle,
        "</style>\n</head>\n<body>\n<header>\n<h1>Sharing a GPU: what was asked for, and "
        "what came of it</h1>\n");
    WriteSources();
    WriteContents();
    Put("</header>\n<main>\n");
    if (report_.scenarios.empty()) Put("<p>There are no runs in these results.</p>\n");
    for (size_t i = 0; i < report_.scenarios.size(); ++i) WriteScenario(i);
    Put("</main>\n<footer class=\"faint\"><p>Made by <code>gpushare bench report</code>. ",
        kHowToRead, "</p></footer>\n</body>\n</html>\n");
    return std::move(page_);
  }

 private:
  template <typename... Parts>
  void Put(const Parts&... parts) {
    absl::StrAppend(&page_, parts...);
  }

  void Term(const char* name, const std::string& value) {
    Put("<dt>", name, "</dt><dd>", value.empty() ? "not recorded" : Markup(value), "</dd>\n");
  }

  void WriteSources() {
    Put("<div class=\"from\">\n");
    for (size_t i = 0; i < report_.given.size(); ++i) {
      const Given& given = report_.given[i];
      const Circumstances& in = given.results.circumstances;
      Put("<dl>\n");
      Term(report_.given.size() > 1 ? absl::StrCat("results (", i + 1, ")").c_str() : "results",
           given.file);
      Term("date", in.begun);
      Term("GPU", in.gpu);
      Term("driver", DriverOf(in));
      if (!in.clocks.empty()) Term("clocks", in.clocks);
      Term("machine", in.machine);
      Term("gpushare", in.version);
      Term("commit", in.commit);
      Term("seed", absl::StrCat(in.seed));
      Term("runs", absl::StrCat(given.results.runs.size()));
      Put("</dl>\n");
    }
    Put("</div>\n");
  }

  void WriteContents() {
    if (report_.scenarios.size() < 2) return;
    Put("<nav aria-label=\"Scenarios\"><ul>\n");
    for (size_t i = 0; i < report_.scenarios.size(); ++i) {
      Put("<li><a href=\"#scenario-", i, "\">", Markup(report_.scenarios[i].name), "</a></li>\n");
    }
    Put("</ul></nav>\n");
  }

  void WriteScenario(size_t at) {
    const ScenarioReport& scenario = report_.scenarios[at];
    Put("<section id=\"scenario-", at, "\">\n<h2>", Markup(scenario.name),
        "</h2>\n<p class=\"faint\">");
    if (const std::string question = QuestionOf(scenario); !question.empty()) {
      Put(Markup(question), " ");
    }
    Put(Count(scenario.cases.size(), "case"), ", up to ", Count(scenario.repetitions, "repetition"),
        ".</p>\n<ul class=\"told\">\n");
    for (const Headline& told : HeadlinesOf(report_, scenario)) {
      Put("<li class=\"", ColourOf(told.method), "\"><b>", Markup(report_.methods[told.method]),
          "</b>: ", Markup(Unbroken(told.sentence)), "</li>\n");
    }
    Put("</ul>\n");
    WritePlots(ScalePlots(report_, scenario));
    for (const CaseReport& one : scenario.cases) WriteCase(one);
    Put("</section>\n");
  }

  void WriteCase(const CaseReport& one) {
    Put("<section class=\"case\">\n<h3>", Markup(one.name), "</h3>\n");
    WriteFigures(one);
    // Bar plots are lower than others; in rows of their own they leave no gaps.
    std::vector<Plot> plots = AskedPlots(report_, one);
    for (const auto& draw : {SharePlots, LatencyPlots}) {
      for (Plot& plot : draw(report_, one)) plots.push_back(std::move(plot));
    }
    WritePlots(plots);
    WritePlots(BarPlots(report_, one));
    Put("</section>\n");
  }

  void WriteFigures(const CaseReport& one) {
    // A scrollable box must be reachable by keyboard (tabindex).
    Put("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"figures of ",
        Markup(one.name),
        "\">\n<table>\n<thead><tr><th scope=\"col\">figure</th>"
        "<th scope=\"col\" class=\"u\">unit</th>");
    for (const Part& part : one.parts) {
      Put("<th scope=\"col\" class=\"n\">", Markup(Elided(report_.methods[part.method], kCellEms)),
          "</th>");
    }
    Put("</tr></thead>\n<tbody>\n");
    for (const Row& row : one.rows) {
      const std::string unit = Markup(UnitName(row.unit));
      Put("<tr><th scope=\"row\" title=\"", Markup(row.name), "\"");
      if (!unit.empty()) Put(" data-unit=\"", unit, "\"");
      Put(">", Markup(Elided(TitleOf(row), kCellEms)), "</th><td class=\"u\">", unit, "</td>");
      for (const Part& part : one.parts) {
        const auto found = row.by_method.find(part.method);
        if (found != row.by_method.end()) {
          Put("<td class=\"n\">", IntervalIn(row.unit, found->second), "</td>");
        } else {
          Put("<td class=\"n none\">", MissingOf(part), "</td>");
        }
      }
      Put("</tr>\n");
    }
    WriteStates(one);
    Put("</tbody>\n</table>\n</div>\n");
    for (const Part& part : one.parts) {
      for (const std::string& why : part.why) {
        Put("<p class=\"faint\">", Markup(report_.methods[part.method]), ", ", StateOf(part), ": ",
            Markup(why), "</p>\n");
      }
    }
  }

  // Writes the number of runs behind each column.
  void WriteStates(const CaseReport& one) {
    Put("<tr><th scope=\"row\">runs with figures</th><td class=\"u\"></td>");
    for (const Part& part : one.parts) {
      Put("<td class=\"n\">", part.good, " of ", part.good + part.failed + part.not_supported,
          "</td>");
    }
    Put("</tr>\n");
  }

  void WritePlots(const std::vector<Plot>& plots) {
    if (plots.empty()) return;
    Put("<div class=\"plots\">\n");
    for (const Plot& plot : plots) {
      Put("<figure><figcaption>", Markup(plot.caption), "</figcaption>\n", plot.svg, "</figure>\n");
    }
    Put("</div>\n");
  }

  const Report& report_;
  std::string page_;
};

}  // namespace

std::string PageOf(const Report& report) { return PageWriter(report).Write(); }

}  // namespace gpushare::harness::report
