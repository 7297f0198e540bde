// SPDX-License-Identifier: Apache-2.0
// A device profile: the findings of a calibration, and the settings that make the simulated GPU behave like the device.
// docs/profiles.md describes the format; the simulated GPU reads it (sim/config/profile.h).
#ifndef GPUSHARE_HARNESS_CALIBRATE_PROFILE_H_
#define GPUSHARE_HARNESS_CALIBRATE_PROFILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "harness/calibrate/finding.h"
#include "harness/statistics.h"

namespace gpushare::harness {

// The entry of a figure in figures.def.
struct ProfileFigureInfo {
  const char* name;
  const char* part;
  const char* unit;
  bool is_setting;
  const char* words;
};
const std::vector<ProfileFigureInfo>& ProfileFigures();

struct ProfileFigure {
  const ProfileFigureInfo* info;
  Median median = {};        // of its samples
  std::string words = {};    // a finding in words, instead of samples
  std::string why_not = {};  // why it was not measured
};

struct Profile {
  // The GPU, time and tools of the measurement, in the order in which they are written.
  std::vector<std::pair<std::string, std::string>> from;
  std::vector<ProfileFigure> figures;
};

// The figures from the findings of all parts, in the order of figures.def. Samples with one name are combined. A figure without a
// finding gets its part's name as `why_not`.
std::vector<ProfileFigure> FiguresOfFindings(const std::vector<Finding>& findings);

// The setting of the simulated GPU for a figure; empty if it has none or was not measured.
std::string SettingOf(const ProfileFigure& figure);
// A value for people: "2.91 us".
std::string ShownValue(const ProfileFigure& figure, double value);

std::string FormatProfile(const Profile& profile);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_CALIBRATE_PROFILE_H_
