// SPDX-License-Identifier: Apache-2.0
#include "harness/calibrate/finding.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace gpushare::harness {

std::string FormatFinding(const Finding& finding) {
  nlohmann::json line = {{"name", finding.name}};
  if (!finding.samples.empty()) line["samples"] = finding.samples;
  if (!finding.words.empty()) line["words"] = finding.words;
  if (!finding.why_not.empty()) line["why_not"] = finding.why_not;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Finding> ParseFinding(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto wrong = [](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("a finding that cannot be read: ", what));
  };
  if (!json.is_object()) return wrong("no object");
  Finding finding;
  for (const auto& [key, value] : json.items()) {
    if (key == "samples") {
      if (!value.is_array() || value.size() > Finding::kMostSamples) return wrong("its samples");
      for (const auto& sample : value) {
        if (!sample.is_number() || !std::isfinite(sample.get<double>())) return wrong("a sample");
        finding.samples.push_back(sample.get<double>());
      }
      continue;
    }
    std::string* const text = key == "name"      ? &finding.name
                              : key == "words"   ? &finding.words
                              : key == "why_not" ? &finding.why_not
                                                 : nullptr;
    if (text == nullptr || !value.is_string()) return wrong("a key");
    *text = value.get<std::string>();
  }
  if (finding.name.empty()) return wrong("it has no name");
  return finding;
}

}  // namespace gpushare::harness
