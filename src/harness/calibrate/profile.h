// SPDX-License-Identifier: Apache-2.0
// The profile of a device: what a calibration found out, and the settings by which the simulated GPU is like it. What it
// looks like is docs/profiles.md; the simulated GPU reads it (sim/profile.h), and nobody else has to.
#ifndef GPUSHARE_HARNESS_CALIBRATE_PROFILE_H_
#define GPUSHARE_HARNESS_CALIBRATE_PROFILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "harness/calibrate/finding.h"
#include "harness/statistics.h"

namespace gpushare::harness {

// What figures.def has of a figure.
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
  std::string words = {};    // in their place
  std::string why_not = {};  // it was not measured
};

struct Profile {
  // Of what, when and by whom, in the order in which it is written.
  std::vector<std::pair<std::string, std::string>> from;
  std::vector<ProfileFigure> figures;
};

// Of the findings of all parts, in the order of figures.def; samples of one name count together. What nobody found has
// `why_not` of its part's name.
std::vector<ProfileFigure> FiguresOfFindings(const std::vector<Finding>& findings);

// Its setting of the simulated GPU; empty: it is none, or was not measured.
std::string SettingOf(const ProfileFigure& figure);
// A median as people read it: 2.91 us.
std::string ShownValue(const ProfileFigure& figure, double value);

std::string FormatProfile(const Profile& profile);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_CALIBRATE_PROFILE_H_
