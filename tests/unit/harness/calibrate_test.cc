// SPDX-License-Identifier: Apache-2.0
// The output of a calibration's programs, and the profile that results.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "harness/calibrate/finding.h"
#include "harness/calibrate/profile.h"
#include "yaml/document.h"

namespace gpushare::harness {
namespace {

const ProfileFigure& Named(const std::vector<ProfileFigure>& figures, const std::string& name) {
  for (const ProfileFigure& figure : figures) {
    if (figure.info->name == name) return figure;
  }
  ADD_FAILURE() << name;
  return figures.front();
}

TEST(Finding, SurvivesItsLine) {
  for (const Finding& finding :
       {Finding{"launch_host", {1.5, 2e9, 0}, "", ""}, Finding{"name", {}, "A \"card\"\n", ""},
        Finding{"teardown", {}, "", "it hung"}}) {
    const std::string line = FormatFinding(finding);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    const absl::StatusOr<Finding> read = ParseFinding(line);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->name, finding.name);
    EXPECT_EQ(read->samples, finding.samples);
    EXPECT_EQ(read->words, finding.words);
    EXPECT_EQ(read->why_not, finding.why_not);
  }
}

TEST(Finding, WhatIsNoneIsRefused) {
  for (const char* line :
       {"", "{", "[]", "{}", "{\"name\":\"\"}", "{\"name\":1}", "{\"name\":\"a\",\"samples\":1}",
        "{\"name\":\"a\",\"samples\":[\"1\"]}", "{\"name\":\"a\",\"samples\":[1e999]}",
        "{\"name\":\"a\",\"other\":\"b\"}", "{\"name\":\"launch_host\",\"samp"}) {
    EXPECT_FALSE(ParseFinding(line).ok()) << line;
  }
}

TEST(Profile, EachFigureHasWhatWasFoundOrWhyNot) {
  const std::vector<ProfileFigure> figures = FiguresOfFindings({{"launch_host", {3, 1}, "", ""},
                                                                {"launch_host", {2}, "", ""},
                                                                {"name", {}, "Card", ""},
                                                                {"slice", {}, "", "no turns"},
                                                                {"nobody", {1}, "", ""}});
  EXPECT_EQ(figures.size(), ProfileFigures().size());
  EXPECT_EQ(Named(figures, "launch_host").median.value, 2);
  EXPECT_EQ(Named(figures, "launch_host").median.n, 3U);
  EXPECT_EQ(Named(figures, "name").words, "Card");
  EXPECT_EQ(Named(figures, "slice").why_not, "no turns");
  EXPECT_EQ(Named(figures, "h2d").why_not, "the part 'copies' did not come so far");
  EXPECT_TRUE(Named(figures, "launch_host").why_not.empty());
}

// A finding of one try counts although another try found nothing.
TEST(Profile, OneTryIsEnough) {
  const std::vector<ProfileFigure> figures =
      FiguresOfFindings({{"teardown", {}, "", "it hung"}, {"teardown", {5}, "", ""}});
  EXPECT_TRUE(Named(figures, "teardown").why_not.empty());
  EXPECT_EQ(SettingOf(Named(figures, "teardown")), "5ns");
}

TEST(Profile, SettingsAreTheSimulatedGpusWords) {
  const std::vector<ProfileFigure> figures =
      FiguresOfFindings({{"launch_host", {2913.4}, "", ""},
                         {"memory", {151397597184.0}, "", ""},
                         {"sms", {132}, "", ""},
                         {"h2d", {53.12345678}, "", ""},
                         {"overlap", {}, "serial", ""},
                         {"name", {}, "K\xc3\xa4rt", ""},
                         {"marker_bias", {7}, "", ""},
                         {"launch_latency", {-3}, "", ""}});
  EXPECT_EQ(SettingOf(Named(figures, "launch_host")), "2913ns");
  EXPECT_EQ(SettingOf(Named(figures, "memory")), "151397597184B");
  EXPECT_EQ(SettingOf(Named(figures, "sms")), "132");
  EXPECT_EQ(SettingOf(Named(figures, "h2d")), "53.1235GB/s");
  EXPECT_EQ(SettingOf(Named(figures, "overlap")), "serial");
  EXPECT_EQ(SettingOf(Named(figures, "name")), "K??rt");
  EXPECT_EQ(SettingOf(Named(figures, "marker_bias")), "");  // the simulated GPU has no such key
  EXPECT_EQ(SettingOf(Named(figures, "launch_latency")), "0ns");
  EXPECT_EQ(SettingOf(Named(figures, "d2h")), "");
}

TEST(Profile, PeopleReadRoundFigures) {
  const ProfileFigureInfo time = {"t", "p", "ns", true, ""}, bytes = {"b", "p", "B", true, ""},
                          rate = {"r", "p", "GB/s", true, ""}, number = {"n", "p", "", true, ""};
  const auto shown = [](const ProfileFigureInfo& info, double value) {
    return ShownValue({&info, {}, "", ""}, value);
  };
  EXPECT_EQ(shown(time, 0), "0 ns");
  EXPECT_EQ(shown(time, 999.94), "999.9 ns");
  EXPECT_EQ(shown(time, 999.999), "1 us");
  EXPECT_EQ(shown(time, 2913.4), "2.913 us");
  EXPECT_EQ(shown(time, -100144), "-100.1 us");
  EXPECT_EQ(shown(time, 2e6), "2 ms");
  EXPECT_EQ(shown(time, 3e9), "3 s");
  EXPECT_EQ(shown(bytes, 512), "512 B");
  EXPECT_EQ(shown(bytes, 3 << 20), "3 MiB");
  EXPECT_EQ(shown(rate, 53.12345), "53.12 GB/s");
  EXPECT_EQ(shown(number, 1024), "1024");
}

TEST(Profile, IsYaml) {
  Profile profile;
  profile.from = {{"gpu", "A \"card\" \\ 7"}, {"machine", "x: y # z\n\xff"}};
  profile.figures = FiguresOfFindings({{"launch_host", {1, 2, 3}, "", ""},
                                       {"name", {}, "A \"card\" \\ 7", ""},
                                       {"teardown", {}, "", "it said: \"no\"\nand \xc3\xa4 #"}});
  const std::string text = FormatProfile(profile);
  const absl::StatusOr<yaml::Node> document = yaml::Parse(text, "profile");
  ASSERT_TRUE(document.ok()) << document.status() << text;
  std::map<std::string, std::map<std::string, const yaml::Node*>> sections;
  for (size_t i = 0; i < document->keys.size(); ++i) {
    const yaml::Node& section = document->values[i];
    for (size_t k = 0; k < section.keys.size(); ++k) {
      sections[document->keys[i].text][section.keys[k].text] = &section.values[k];
    }
  }
  EXPECT_EQ(document->keys.front().text, "profile");
  EXPECT_EQ(document->values.front().text, "1");
  EXPECT_EQ(sections["from"]["gpu"]->text, "A \"card\" \\ 7");
  EXPECT_EQ(sections["from"]["machine"]->text, "x: y # z??");
  EXPECT_EQ(sections["settings"].size(), 2U);
  EXPECT_EQ(sections["settings"]["launch_host"]->text, "2ns");
  EXPECT_EQ(sections["settings"]["name"]->text, "A \"card\" \\ 7");
  EXPECT_EQ(sections["measured"].size(), 1U);
  EXPECT_EQ(sections["measured"]["launch_host"]->kind, yaml::Node::Kind::kMap);
  EXPECT_EQ(sections["not_measured"].size(), ProfileFigures().size() - 2);
  EXPECT_EQ(sections["not_measured"]["teardown"]->text, "it said: \"no\"\\x0aand ?? #");
}

}  // namespace
}  // namespace gpushare::harness
