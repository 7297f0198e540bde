// SPDX-License-Identifier: Apache-2.0
#include "harness/report/csv.h"

#include <charconv>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/text.h"

namespace gpushare::harness::report {
namespace {

std::string Cell(std::string_view text) {
  std::string cell = Printable(text, 1000);
  if (!cell.empty() && absl::StrContains("=+-@", cell.front())) cell = "'" + cell;
  if (cell.find_first_of(",\"") == std::string::npos) return cell;
  return absl::StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
}

// The shortest text that reads back as the same value.
std::string Exact(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return std::string(text, end);
}

const char* BetterName(Figure::Better better) {
  switch (better) {
    case Figure::Better::kNeither:
      return "";
    case Figure::Better::kLower:
      return "lower";
    case Figure::Better::kHigher:
      return "higher";
  }
  return "";
}

}  // namespace

std::string CsvOf(const Report& report) {
  std::string csv =
      "results,begun,gpu,driver,machine,gpushare,commit,seed,scenario,case,method,repetition,"
      "state,figure,unit,value,better,why\r\n";
  for (const Given& given : report.given) {
    const Circumstances& in = given.results.circumstances;
    const std::string from =
        absl::StrJoin({Cell(given.file), Cell(in.begun), Cell(in.gpu), Cell(in.driver),
                       Cell(in.machine), Cell(in.version), Cell(in.commit), absl::StrCat(in.seed)},
                      ",");
    for (const Result& run : given.results.runs) {
      const std::string which = absl::StrJoin({from, Cell(run.scenario), Cell(run.one_case),
                                               Cell(run.method), absl::StrCat(run.repetition)},
                                              ",");
      if (!run.error.empty() || !run.not_supported.empty()) {
        const bool failed = !run.error.empty();
        absl::StrAppend(&csv, which, failed ? ",failed" : ",not supported", ",,,,,",
                        Cell(failed ? run.error : run.not_supported), "\r\n");
        continue;
      }
      for (const Figure& figure : run.figures) {
        absl::StrAppend(&csv, which, ",good,", Cell(figure.name), ",", Cell(figure.unit), ",",
                        figure.value.has_value() ? Exact(*figure.value) : "", ",",
                        BetterName(figure.better), ",\r\n");
      }
    }
  }
  return csv;
}

}  // namespace gpushare::harness::report
