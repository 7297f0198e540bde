// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cli/bench/read_results.h"
#include "cli/output.h"
#include "cli/text_table.h"
#include "harness/compare.h"
#include "harness/made_otherwise.h"
#include "harness/method.h"
#include "harness/report/words.h"
#include "harness/statistics.h"

namespace gpushare::cli {
namespace {

using harness::Result;

// A map that keeps the order of insertion.
template <typename Value>
class Ordered {
 public:
  Value& operator[](const std::string& key) {
    const auto [at, is_new] = places_.emplace(key, entries_.size());
    if (is_new) entries_.emplace_back(key, Value());
    return entries_[at->second].second;
  }
  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }

 private:
  std::map<std::string, size_t> places_;
  std::vector<std::pair<std::string, Value>> entries_;
};

std::string Number(double value) {
  char text[32];
  const int digits = std::fabs(value) >= 100 ? 0 : std::fabs(value) >= 10 ? 1 : 2;
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

struct Row {
  std::string unit;
  std::map<std::string, std::vector<double>> by_method;  // an empty vector: no samples
};
struct CaseTable {
  std::map<std::string, int> repetitions;  // by method: number of runs with figures
  Ordered<Row> rows;
  Ordered<std::string> notes;  // by method: why it has no figures
};

// Text from a file, which is untrusted.
std::string Shown(const std::string& text) { return Printable(text, 500); }

std::string Text(const harness::Median& median, std::string_view unit) {
  if (unit.empty()) return harness::report::IntervalIn(unit, median);
  if (median.low == median.high) return Number(median.value);
  return absl::StrCat(Number(median.value), " [", Number(median.low), ", ", Number(median.high),
                      "]");
}

std::string Cell(const Row& row, const std::string& method) {
  const auto found = row.by_method.find(method);
  if (found == row.by_method.end()) return "-";
  return found->second.empty() ? "no samples" : Text(harness::MedianOf(found->second), row.unit);
}

std::string Text(const harness::Comparison::Side& side, std::string_view unit) {
  if (!side.why.empty()) return Shown(side.why);
  return absl::StrCat(Text(side.median, unit), ", n = ", side.median.n);
}

// Advice on how many repetitions would decide the figures that are unsure.
std::string MoreRepetitions(size_t unsure, const std::vector<harness::Comparison>& compared) {
  const size_t figures = harness::FiguresCompared(compared);
  return absl::StrCat("\nunsure: ", unsure, " of ", figures, " figure", figures == 1 ? "" : "s",
                      ", which may lie so by chance; of so many --repetitions ",
                      harness::RepetitionsFor(figures), " on both sides can tell\n");
}

std::string OtherwiseText(const harness::Results& before, const harness::Results& after) {
  const std::vector<harness::Otherwise> otherwise = harness::MadeOtherwise(before, after);
  if (otherwise.empty()) return "";
  TextTable table({{"made otherwise"}, {"before"}, {"after"}});
  for (const harness::Otherwise& each : otherwise) {
    table.AddRow({Shown(each.what), each.before.empty() ? "none" : Shown(each.before),
                  each.after.empty() ? "none" : Shown(each.after)});
  }
  return absl::StrCat("\n", table.ToString());
}

}  // namespace

std::string ResultsText(const harness::Results& results) {
  Ordered<bool> methods;
  Ordered<CaseTable> cases;
  // gpushare's methods in a fixed order, since the runs were shuffled.
  for (const std::string& name : harness::MethodNames()) {
    const auto is_it = [&name](const Result& run) { return run.method == name; };
    if (std::any_of(results.runs.begin(), results.runs.end(), is_it)) methods[name] = true;
  }
  for (const Result& run : results.runs) {
    methods[run.method] = true;
    CaseTable& table = cases[absl::StrCat(run.scenario, ": ", run.one_case)];
    if (!run.not_supported.empty()) table.notes[run.method] = "not supported: " + run.not_supported;
    if (!run.error.empty()) table.notes[run.method] = "failed: " + run.error;
    if (!run.figures.empty()) ++table.repetitions[run.method];
    for (const harness::Figure& figure : run.figures) {
      Row& row = table.rows[figure.name];
      row.unit = figure.unit;
      std::vector<double>& values = row.by_method[run.method];
      if (figure.value.has_value()) values.push_back(*figure.value);
    }
  }
  std::string text;
  bool several = false;
  for (const auto& [name, one] : cases.entries()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", Shown(name), "\n");
    std::vector<TextColumn> columns = {{"figure"}, {"unit"}};
    std::vector<std::string> counts = {"n", ""};
    for (const auto& [method, there] : methods.entries()) {
      columns.push_back({Shown(method), Align::kRight});
      const auto count = one.repetitions.find(method);
      counts.push_back(count == one.repetitions.end() ? "-" : absl::StrCat(count->second));
      several = several || (count != one.repetitions.end() && count->second > 1);
    }
    TextTable table(columns);
    table.AddRow(std::move(counts));
    for (const auto& [figure, row] : one.rows.entries()) {
      std::vector<std::string> cells = {Shown(figure), Shown(row.unit)};
      for (const auto& [method, there] : methods.entries()) cells.push_back(Cell(row, method));
      table.AddRow(std::move(cells));
    }
    if (!one.rows.entries().empty()) text += table.ToString();
    for (const auto& [method, note] : one.notes.entries())
      absl::StrAppend(&text, Shown(method), " ", Shown(note), "\n");
  }
  if (several) absl::StrAppend(&text, "\n", harness::report::kHowToRead, "\n");
  if (results.runs.empty()) text = "There are no runs in these results.\n";
  return text;
}

ExitCode ShowResults(const std::string& file) {
  const absl::StatusOr<harness::Results> results = ReadResults(file);
  if (!results.ok()) return Fail("bench show", kExitUsage, results.status());
  Print(ResultsText(*results));
  return FinishStdout("bench show");
}

ExitCode CompareResults(const std::string& before, const std::string& after) {
  const absl::StatusOr<harness::Results> first = ReadResults(before), second = ReadResults(after);
  for (const auto* each : {&first, &second}) {
    if (!each->ok()) return Fail("bench compare", kExitUsage, each->status());
  }
  TextTable table({{"scenario: case"},
                   {"method"},
                   {"figure"},
                   {"unit"},
                   {"before", Align::kRight},
                   {"after", Align::kRight},
                   {"verdict"}});
  bool worse = false;
  size_t unsure = 0;
  const std::vector<harness::Comparison> compared = harness::Compare(*first, *second);
  for (const harness::Comparison& each : compared) {
    worse = worse || harness::IsWorse(each.verdict);
    unsure += each.verdict == harness::Verdict::kUnsure ? 1 : 0;
    table.AddRow({Shown(absl::StrCat(each.scenario, ": ", each.one_case)), Shown(each.method),
                  Shown(each.figure), Shown(each.unit), Text(each.before, each.unit),
                  Text(each.after, each.unit), harness::VerdictName(each.verdict)});
  }
  Print(table.ToString());
  if (unsure > 0) std::fputs(MoreRepetitions(unsure, compared).c_str(), stdout);
  std::fputs(OtherwiseText(*first, *second).c_str(), stdout);
  const ExitCode code = FinishStdout("bench compare");
  return code == kExitOk && worse ? kExitFailed : code;
}

}  // namespace gpushare::cli
