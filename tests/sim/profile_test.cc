// SPDX-License-Identifier: Apache-2.0
// Device profiles: what of them is taken, and what is said of the rest.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class ProfileTest : public testing::Test {
 protected:
  ProfileTest()
      : file_(testing::TempDir() + "profile_test." + std::to_string(getpid()) + ".yaml") {}
  ~ProfileTest() override { std::filesystem::remove(file_); }
  void TearDown() override {
    unsetenv("GPUSHARE_SIM");
    EXPECT_EQ(0, gpushare_sim_reset());
  }

  void Write(const std::string& text) { std::ofstream(file_, std::ios::binary) << text; }
  // Of a profile of that text: what is wrong with it, without the file's name.
  std::string Refused(const std::string& text) {
    Write(text);
    char error[512] = "";
    EXPECT_EQ(-1, gpushare_sim_check(("profile=" + file_).c_str(), error, sizeof(error))) << text;
    const std::string said = error;
    EXPECT_EQ(said.substr(0, file_.size() + 1), file_ + ":");
    return said.substr(std::min(said.size(), file_.size() + 1));
  }
  int Sms() {
    EXPECT_CU(cuInit(0));
    int sms = 0;
    EXPECT_CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    return sms;
  }

  const std::string file_;
};

constexpr char kGood[] =
    "# Measured.\n"
    "profile: 1\n"
    "\n"
    "from:\n"
    "  gpu: NVIDIA H200\n"
    "  date: \"2026-11-23T18:26:49Z\"\n"
    "settings: # as in GPUSHARE_SIM\n"
    "    name: \"A card, \\\"odd\\\"\"  # a comma is no end here\r\n"
    "    sms: 37\n"
    "    memory: 3GiB # and a comment\n"
    "measured:\n"
    "  launch_host: {median: 2913, low: 2880, high: 2990, samples: 100, unit: \"ns\"}\n"
    "not_measured:\n"
    "  teardown: \"it hung\"\n";

TEST_F(ProfileTest, IsTakenWhereItStands) {
  Write(kGood);
  ASSERT_EQ(
      0, gpushare_sim_configure(("sms=5,profile=" + file_ + ",memory=1GiB").c_str(), nullptr, 0));
  EXPECT_EQ(Sms(), 37);
  size_t bytes = 0;
  EXPECT_CU(cuDeviceTotalMem(&bytes, 0));
  EXPECT_EQ(bytes, 1ull << 30);
  char name[64] = "";
  EXPECT_CU(cuDeviceGetName(name, sizeof(name), 0));
  EXPECT_STREQ(name, "A card, \"odd\"");
}

TEST_F(ProfileTest, TheEnvironmentMayNameItAndACallWins) {
  Write(kGood);
  ASSERT_EQ(0, setenv("GPUSHARE_SIM", ("profile=" + file_).c_str(), 1));
  ASSERT_EQ(0, gpushare_sim_configure("memory=1GiB", nullptr, 0));
  EXPECT_EQ(Sms(), 37);
}

TEST_F(ProfileTest, ARefusalNamesTheLineTheKeyAndWhatIsAllowed) {
  const std::string head = "profile: 1\nsettings:\n";
  EXPECT_EQ(Refused(head + "  sms: 0\n"), "3: bad value '0' of 'sms'; allowed: 1 to 4096");
  EXPECT_EQ(Refused(head + "  sms: 4\n  speed: 9\n"),
            "4: unknown key 'speed' (the keys are listed in gpushare/testing/sim.h)");
  EXPECT_EQ(Refused(head + "  clock: wall\n"),
            "3: 'clock' is of a run and not of a device: GPUSHARE_SIM sets it");
  EXPECT_EQ(Refused(head + "  profile: /etc/passwd\n"),
            "3: 'profile' is of a run and not of a device: GPUSHARE_SIM sets it");
  EXPECT_EQ(Refused("profile: 2\nsettings:\n"),
            "1: a profile of version '2'; this gpushare reads version 1");
  EXPECT_EQ(Refused("question: share\n"),
            "1: it is no device profile: the first line is not 'profile: 1'");
  EXPECT_EQ(Refused(""), "1: it is no device profile: the first line is not 'profile: 1'");
  EXPECT_EQ(Refused("profile: 1\n"), "1: there are no settings");
  EXPECT_EQ(Refused("profile: 1\nsetings:\n"),
            "2: unknown key 'setings'; there are from, settings, measured and not_measured");
  EXPECT_EQ(Refused(head + "  sms: 4\n  sms: 5\n"), "4: 'sms' is there twice");
  EXPECT_EQ(Refused(head + "settings:\n"), "3: 'settings' is there twice");
  EXPECT_EQ(Refused("profile: 1\nsettings: {sms: 4}\n"),
            "2: 'settings' is a section: its entries stand below it");
  EXPECT_EQ(Refused("profile: 1\n  sms: 4\n"), "2: 'sms' is in no section");
  EXPECT_EQ(Refused(head + "  sms: 4\n    h2d: 4GB/s\n"),
            "4: 'h2d' does not stand below the key before it");
  EXPECT_EQ(Refused(head + "  - sms\n"), "3: '- sms' is not of the form 'key: value'");
  EXPECT_EQ(Refused(head + "\tsms: 4\n"), "3: a tab before the key: blanks alone are read");
  EXPECT_EQ(Refused(head + "  name: \"H200\n"), "3: name: the quotes do not end");
  EXPECT_EQ(Refused(head + "  name: \"a\" b\n"), "3: name: 'b' stands behind the quotes");
  EXPECT_EQ(Refused(head + "  name: \"\\u0041\"\n"),
            "3: name: of what a backslash may stand before, quotes and backslashes alone are read");
  EXPECT_EQ(Refused(head + "  name: *anchor\n"), "3: name: wants double quotes around '*anchor'");
  for (const std::string nothing : {"~", "null", "Null", "NULL"}) {  // in YAML no text
    EXPECT_EQ(Refused(head + "  name: " + nothing + "\n"),
              "3: name: wants double quotes around '" + nothing + "'");
  }
  EXPECT_EQ(Refused(head + "  null: \"H200\"\n"),
            "3: 'null: \"H200\"' is not of the form 'key: value'");
  // What is for people is read as far as to know where it ends.
  EXPECT_EQ(Refused("profile: 1\nfrom:\n  gpu: '\"H200'\nsettings:\n"),
            "3: gpu: wants double quotes around ''\"H200''");
  EXPECT_EQ(Refused(head + "measured:\n  h2d: {median: b\", unit: \"}\n"),
            "4: h2d: wants double quotes around '{median: b\", unit: \"}'");
  EXPECT_EQ(Refused(head + "  sms\x1b[31m" + std::string(100, 'x')),
            "3: 'sms?[31m" + std::string(32, 'x') + "...' is not printable ASCII");
  EXPECT_EQ(Refused(head + "  \r  sms: 4\n"), "3: '?  sms: 4' is not printable ASCII");
  EXPECT_EQ(Refused(head + "  name: K\xc3\xa4rt\n"), "3: 'name: K??rt' is not printable ASCII");
}

TEST_F(ProfileTest, WhatIsNoFileIsRefused) {
  const auto refused = [](const std::string& settings) {
    char error[512] = "";
    EXPECT_EQ(-1, gpushare_sim_check(settings.c_str(), error, sizeof(error))) << settings;
    return std::string(error);
  };
  EXPECT_EQ(refused("profile=/nowhere.yaml"), "/nowhere.yaml: No such file or directory");
  EXPECT_EQ(refused("profile=/dev/zero"), "/dev/zero: it is no file");
  EXPECT_EQ(refused("profile=/tmp"), "/tmp: it is no file");
  EXPECT_EQ(refused("profile="), "bad value '' of 'profile'; allowed: the path of a file");
  EXPECT_EQ(Refused(std::string(100'000, '#')), "1: a profile has 64 KiB at most");
}

TEST_F(ProfileTest, ARefusedOneChangesNothing) {
  Write("profile: 1\nsettings:\n  sms: 9\n  memory: 1 potato\n");
  EXPECT_EQ(-1, gpushare_sim_configure(("profile=" + file_).c_str(), nullptr, 0));
  EXPECT_EQ(Sms(), 132);
}

}  // namespace
}  // namespace gpushare::sim_test
