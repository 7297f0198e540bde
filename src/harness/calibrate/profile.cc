// SPDX-License-Identifier: Apache-2.0
#include "harness/calibrate/profile.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace gpushare::harness {
namespace {

std::string Decimal(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.*g", digits, value);
  return text;
}

// Rounded to a whole number, without an exponent.
std::string Whole(double value) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.0f", std::max(value, 0.0));
  return text;
}

// `text` as a double-quoted YAML string. Characters that would need other escapes become question marks.
std::string InQuotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c < ' ' || c > '~' ? '?' : c);
  }
  return quoted + "\"";
}

// `text` as a device name: the simulated GPU accepts printable ASCII only.
std::string AsName(const std::string& text) {
  std::string name = text;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

bool IsMeasured(const ProfileFigure& figure) { return figure.why_not.empty(); }

}  // namespace

const std::vector<ProfileFigureInfo>& ProfileFigures() {
  static const std::vector<ProfileFigureInfo> figures = {
#define X(name, part, unit, key, words) {#name, #part, unit, key, words},
#include "harness/calibrate/figures.def"
#undef X
  };
  return figures;
}

std::vector<ProfileFigure> FiguresOfFindings(const std::vector<Finding>& findings) {
  std::vector<ProfileFigure> figures;
  for (const ProfileFigureInfo& info : ProfileFigures()) {
    ProfileFigure figure = {&info};
    std::vector<double> samples;
    for (const Finding& finding : findings) {
      if (finding.name != info.name) continue;
      samples.insert(samples.end(), finding.samples.begin(), finding.samples.end());
      if (!finding.words.empty()) figure.words = finding.words;
      if (!finding.why_not.empty()) figure.why_not = finding.why_not;
    }
    if (!samples.empty() || !figure.words.empty()) {
      figure.why_not.clear();
    } else if (figure.why_not.empty()) {
      figure.why_not = absl::StrCat("the part '", info.part, "' did not come so far");
    }
    figure.median = MedianOf(std::move(samples));
    figures.push_back(std::move(figure));
  }
  return figures;
}

std::string SettingOf(const ProfileFigure& figure) {
  if (!figure.info->is_setting || !IsMeasured(figure)) return "";
  if (!figure.words.empty()) return AsName(figure.words);
  const std::string_view unit = figure.info->unit;
  if (unit == "GB/s") return absl::StrCat(Decimal(figure.median.value, 6), figure.info->unit);
  return absl::StrCat(Whole(figure.median.value), figure.info->unit);
}

std::string ShownValue(const ProfileFigure& figure, double value) {
  const std::string_view unit = figure.info->unit;
  const auto scaled = [&](double least, const char* word) {
    // The difference of two equal measurements is not exactly 0 in floating point.
    const double shown = std::abs(value) < 1e-3 ? 0 : value;
    return absl::StrCat(Decimal(shown / least, 4), " ", word);
  };
  if (unit == "ns") {
    const double size = std::abs(value);
    // A value that rounds up to 1 of the next unit is shown in that unit.
    return size >= 999.95e6   ? scaled(1e9, "s")
           : size >= 999.95e3 ? scaled(1e6, "ms")
           : size >= 999.95   ? scaled(1e3, "us")
                              : scaled(1, "ns");
  }
  if (unit == "B") {
    constexpr double kKib = 1024;
    return value >= kKib * kKib * kKib ? scaled(kKib * kKib * kKib, "GiB")
           : value >= kKib * kKib      ? scaled(kKib * kKib, "MiB")
           : value >= kKib             ? scaled(kKib, "KiB")
                                       : scaled(1, "B");
  }
  return unit.empty() ? Decimal(value, 6) : scaled(1, figure.info->unit);
}

std::string FormatProfile(const Profile& profile) {
  std::string text =
      "profile: 1\n"
      "# A GPU, as `gpushare bench calibrate` measured it. GPUSHARE_SIM=profile=FILE makes the "
      "simulated GPU like it.\n"
      "from:\n";
  for (const auto& [key, value] : profile.from) {
    absl::StrAppend(&text, "  ", key, ": ", InQuotes(value), "\n");
  }
  absl::StrAppend(&text, "settings:\n");
  for (const ProfileFigure& figure : profile.figures) {
    const std::string setting = SettingOf(figure);
    if (setting.empty()) continue;
    absl::StrAppend(&text, "  ", figure.info->name, ": ",
                    figure.words.empty() ? setting : InQuotes(setting), "\n");
  }
  absl::StrAppend(&text, "measured:\n");
  for (const ProfileFigure& figure : profile.figures) {
    if (figure.median.n == 0) continue;
    const Median& median = figure.median;
    absl::StrAppend(&text, "  ", figure.info->name, ": {median: ", Decimal(median.value, 9),
                    ", low: ", Decimal(median.low, 9), ", high: ", Decimal(median.high, 9),
                    ", samples: ", median.n, ", unit: ", InQuotes(figure.info->unit), "}\n");
  }
  bool all = true;
  for (const ProfileFigure& figure : profile.figures) {
    if (IsMeasured(figure)) continue;
    if (std::exchange(all, false)) absl::StrAppend(&text, "not_measured:\n");
    absl::StrAppend(&text, "  ", figure.info->name, ": ", InQuotes(Printable(figure.why_not, 400)),
                    "\n");
  }
  return text;
}

}  // namespace gpushare::harness
