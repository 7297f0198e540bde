// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a benchmark's results: no crash, and an error names its place. Accepted results give a report in
// each format, in which no text of the file acts as markup, and can be written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "harness/report/csv.h"
#include "harness/report/markdown.h"
#include "harness/report/model.h"
#include "harness/report/page.h"
#include "harness/results.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

namespace {

namespace harness = gpushare::harness;
namespace report = gpushare::harness::report;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

void RequireGoodError(const absl::Status& status) {
  Require(status.code() == absl::StatusCode::kInvalidArgument, "it is InvalidArgument");
  Require(status.message().substr(0, 5) == "file:", "an error says where");
  Require(status.message().size() < 4096, "an error does not echo its input");
}

void RequireItCanBeReadAgain(const harness::Results& results) {
  std::string text = harness::FormatCircumstances(results.circumstances);
  for (const harness::Result& run : results.runs) text += harness::FormatResult(run);
  const auto again = harness::ParseResults(text, "file");
  Require(again.ok(), "what is written can be read");
  Require(again->runs.size() == results.runs.size(), "it has as many runs");
}

void RequireGoodReport(const harness::Results& results) {
  const std::vector<report::Given> given = {{"file", results}};
  const report::Report made = report::ReportOf(given);
  const std::string page = report::PageOf(made);
  Require(gpushare::IsUtf8(page), "the page is UTF-8");
  Require(page.find("<script") == std::string::npos, "the page has no script");
  Require(page.find("=\"nan") == std::string::npos && page.find("=\"-nan") == std::string::npos,
          "its drawings have numbers");
  for (const char c : page) {
    Require(static_cast<unsigned char>(c) >= 0x20 || c == '\n',
            "the page has no control characters");
  }
  const std::string markdown = report::MarkdownOf(made);
  Require(markdown.find('<') == std::string::npos, "the Markdown has no HTML");
  Require(gpushare::IsUtf8(report::CsvOf(made)), "the CSV is UTF-8");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto results = harness::ParseResults(text, "file");
  if (!results.ok()) {
    RequireGoodError(results.status());
    return 0;
  }
  RequireItCanBeReadAgain(*results);
  RequireGoodReport(*results);
  return 0;
}
