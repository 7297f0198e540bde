// SPDX-License-Identifier: Apache-2.0
#include "broker/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "yaml/document.h"

namespace gpushare::broker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

constexpr char kGpu[] = "GPU-6f1c4f0e-1f7c-4c3a-9d53-0b6d8a2f1e11";

// The message of a refusal. Expects that it is InvalidArgument and names the file.
std::string Refused(const std::string& yaml) {
  const auto config = ParseConfig(yaml, "broker.yaml");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << yaml;
  EXPECT_THAT(std::string(config.status().message()), StartsWith("broker.yaml:")) << yaml;
  return std::string(config.status().message());
}

TEST(Config, SaysWhenTheMemoryOfADeadProcessIsFree) {
  const auto left_out = ParseConfig("tenants: []\n", "f");
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_FALSE(left_out->reclaim_after.has_value());
  EXPECT_EQ(left_out->reclaim_most, Seconds(10));
  const auto given = ParseConfig("reclaim: {after: 1.5s, most: 0s}\n", "f");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->reclaim_after, Millis(1500));
  EXPECT_EQ(given->reclaim_most, Nanos(0));
  for (const char* wrong : {"after: 11s", "after: -1s", "most: 10", "most: [1s]", "before: 1s"}) {
    EXPECT_FALSE(ParseConfig(absl::StrCat("reclaim: {", wrong, "}\n"), "f").ok()) << wrong;
  }
}

TEST(BrokerConfig, SaysHowLongASliceIsAndWhatIsKeptBesideAHighPriority) {
  const auto given = ParseConfig("slice: 1.5ms\nfloor: 5%\n", "f");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->slice, Micros(1500));
  EXPECT_DOUBLE_EQ(given->floor, 0.05);
  EXPECT_THAT(Refused("slice: [4ms]\n"), HasSubstr("a list given"));
  EXPECT_THAT(Refused("floor: {a: 5%}\n"), HasSubstr("allowed: a part of the device's time"));
  for (const char* wrong : {"499us", "101ms", "4", "-4ms", "off"}) {
    EXPECT_THAT(Refused(absl::StrCat("slice: ", wrong, "\n")), HasSubstr("500us to 100ms"))
        << wrong;
  }
  for (const char* wrong : {"51%", "-1%", "1ms", "off"}) {
    EXPECT_THAT(Refused(absl::StrCat("floor: ", wrong, "\n")), HasSubstr("0% to 50%")) << wrong;
  }
}

TEST(BrokerConfig, HasEveryKey) {
  const auto config = ParseConfig(absl::StrCat(R"(# a comment
socket: /run/gpushare/other.sock
metrics: 9411
unlisted: true
audit: {interval: 1m, allowance: 2GiB}
reserve:
  "*": 512MiB
  )",
                                               kGpu, R"(: 0B
tenants:
  - name: online
    spec: memory=8GiB, compute=50%, priority=high
    on:
      )",
                                               kGpu, R"(: {memory: 25%}
    users: [root, 1000]
    groups:
      - root
      - 7
    labels: {team: search, note: 'of "us"'}
  - name: batch
    spec:
      memory: 25%
      weight: 2.5
)"),
                                  "broker.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->socket, "/run/gpushare/other.sock");
  EXPECT_EQ(config->metrics, "127.0.0.1:9411");
  EXPECT_TRUE(config->unlisted);
  EXPECT_EQ(config->audit_interval, Seconds(60));
  EXPECT_EQ(config->audit_allowance, uint64_t{2} << 30);
  EXPECT_THAT(config->reserve, ElementsAre(Pair("*", "512MiB"), Pair(kGpu, "0B")));
  ASSERT_EQ(config->tenants.size(), 2u);
  const TenantConfig& online = config->tenants[0];
  EXPECT_EQ(online.name, "online");
  EXPECT_EQ(online.spec, "memory=8GiB,compute=50%,priority=high");
  EXPECT_THAT(online.on, ElementsAre(Pair(kGpu, "memory=25%")));
  EXPECT_THAT(online.uids, ElementsAre(0, 1000));
  EXPECT_THAT(online.gids, ElementsAre(0, 7));
  EXPECT_THAT(online.labels, ElementsAre(Pair("note", "of \"us\""), Pair("team", "search")));
  EXPECT_EQ(config->tenants[1].spec, "memory=25%,weight=2.5");
}

TEST(BrokerConfig, MayBeEmpty) {
  for (const char* yaml : {"", "# nothing\n", "---\n", "{}", "tenants:\n", "tenants: []\n"}) {
    const auto config = ParseConfig(yaml, "broker.yaml");
    ASSERT_TRUE(config.ok()) << yaml << config.status();
    EXPECT_EQ(*config, Config()) << yaml;
  }
}

TEST(BrokerConfig, NamesLineKeyGivenAndAllowed) {
  EXPECT_EQ(Refused("unlisted: true\ntenant: []\n"),
            "broker.yaml:2: there is no key 'tenant'; allowed: socket, metrics, operators, "
            "unlisted, reserve, "
            "audit, reclaim, slice, floor, tenants");
  EXPECT_EQ(Refused("tenants:\n- name: a\n  sepc: memory=1GiB\n"),
            "broker.yaml:3: tenants[0]: there is no key 'sepc'; allowed: name, spec, on, parent, "
            "users, groups, labels");
  EXPECT_EQ(Refused("\n\nunlisted: yes\n"),
            "broker.yaml:3: unlisted: 'yes' given; allowed: true or false");
  EXPECT_THAT(Refused("tenants:\n- name: a\n  spec: memory=1\n"),
              ::testing::AllOf(StartsWith("broker.yaml:3: tenants[0].spec: spec field 'memory'"),
                               HasSubstr("allowed: ")));
}

TEST(BrokerConfig, RefusesWrongTypes) {
  EXPECT_THAT(Refused("[]"), HasSubstr("a list given; allowed: the keys socket"));
  EXPECT_THAT(Refused("text"), HasSubstr("'text' given"));
  EXPECT_THAT(Refused("tenants: 7"), HasSubstr("tenants: '7' given; allowed: a list of tenants"));
  EXPECT_THAT(Refused("tenants: [7]"), HasSubstr("tenants[0]: '7' given"));
  EXPECT_THAT(Refused("tenants: [[]]"), HasSubstr("tenants[0]: a list given"));
  EXPECT_THAT(Refused("tenants: [{}]"), HasSubstr("it has no name"));
  EXPECT_THAT(Refused("tenants: [~]"), HasSubstr("it has no name"));
  EXPECT_THAT(Refused("socket: {a: b}"), HasSubstr("socket: keys and values given"));
  EXPECT_THAT(Refused("socket:"), HasSubstr("socket: nothing given; allowed: a path"));
  EXPECT_THAT(Refused("unlisted: 'true'"), HasSubstr("allowed: true or false"));
  EXPECT_THAT(Refused("tenants: [{name: a, spec: []}]"), HasSubstr("a list given"));
  EXPECT_THAT(Refused("tenants: [{name: a, spec: {memory: [1]}}]"),
              HasSubstr("spec.memory: a list given; allowed: one value"));
  EXPECT_THAT(Refused("tenants: [{name: a, spec: {memory: '1GiB,cap=5%'}}]"),
              HasSubstr("without ','"));
  EXPECT_THAT(Refused("tenants: [{name: a, users: root}]"), HasSubstr("a list of names"));
  EXPECT_THAT(Refused("operators: []"), HasSubstr("names nobody"));
  // An empty list does not mean everybody; a tenant without the key does.
  for (const char* key : {"users", "groups"}) {
    for (const char* nobody : {"[]", ""}) {
      EXPECT_THAT(
          Refused(absl::StrCat("tenants:\n  - name: a\n    ", key, ": ", nobody, "\n")),
          ::testing::AllOf(HasSubstr(absl::StrCat("tenants[0].", key)), HasSubstr("names nobody")));
    }
  }
  EXPECT_THAT(Refused("? [a]\n: b"), HasSubstr("allowed as a key: text"));
}

TEST(BrokerConfig, RefusesWhatIsGivenTwice) {
  EXPECT_EQ(Refused("unlisted: true\nunlisted: true\n"),
            "broker.yaml:2: unlisted: it is given twice");
  EXPECT_EQ(Refused("tenants:\n- name: a\n- name: b\n- name: a\n"),
            "broker.yaml:4: tenants[2].name: there is a tenant 'a' already");
  EXPECT_THAT(Refused("tenants: [{name: a, spec: 'cap=5%,cap=6%'}]"), HasSubstr("given twice"));
}

TEST(BrokerConfig, RefusesNamesThatAreNone) {
  EXPECT_THAT(Refused("tenants: [{name: ''}]"), HasSubstr("tenants[0].name"));
  EXPECT_THAT(Refused(absl::StrCat("tenants: [{name: ", std::string(64, 'a'), "}]")),
              HasSubstr("64 bytes given, 1 to 63 allowed"));
  EXPECT_THAT(Refused("tenants: [{name: \"a\\nb\"}]"), HasSubstr("control characters"));
  EXPECT_THAT(Refused("tenants: [{name: a, on: {all: 'cap=5%'}}]"), HasSubstr("a GPU by its UUID"));
  EXPECT_THAT(Refused("reserve: {H200: 1GiB}"), HasSubstr("a GPU by its UUID"));
  EXPECT_THAT(Refused("reserve: {'*': lots}"), HasSubstr("allowed: a size"));
  for (const char* interval : {"10", "1ms", "25h", "-1s", "inf", "never"}) {
    EXPECT_THAT(Refused(absl::StrCat("audit: {interval: ", interval, "}")),
                HasSubstr("audit.interval: '"))
        << interval;
  }
  EXPECT_THAT(Refused("audit: {allowance: lots}"), HasSubstr("allowed: a size, as in 1GiB"));
  for (const char* label : {"9a", "a-b", "__a", "tenant", "parent", "device_uuid", "le", "''"}) {
    EXPECT_THAT(Refused(absl::StrCat("tenants: [{name: a, labels: {", label, ": b}}]")),
                HasSubstr("a label of a metric"))
        << label;
  }
}

TEST(BrokerConfig, RefusesUsersAndGroupsThatAreNone) {
  EXPECT_THAT(
      Refused("tenants: [{name: a, users: [nobody-of-this-name]}]"),
      HasSubstr("tenants[0].users[0]: 'nobody-of-this-name' given; this machine knows no user"));
  EXPECT_THAT(Refused("tenants: [{name: a, groups: [nobody-of-this-name]}]"),
              HasSubstr("no group"));
  EXPECT_THAT(Refused("tenants: [{name: a, users: [4294967295]}]"), HasSubstr("0 to 4294967294"));
  EXPECT_THAT(Refused("tenants: [{name: a, users: [99999999999]}]"), HasSubstr("0 to 4294967294"));
  EXPECT_THAT(Refused("tenants: [{name: a, users: [-1]}]"), HasSubstr("no user"));
  EXPECT_THAT(Refused("tenants: [{name: a, users: [\"root\\0\"]}]"), HasSubstr("no user"));
}

TEST(BrokerConfig, PromisesNoMoreThanAGpu) {
  EXPECT_TRUE(
      ParseConfig("tenants: [{name: a, spec: compute=60%}, {name: b, spec: compute=40%}]", "x")
          .ok());
  std::string ten = "tenants:\n";
  for (int i = 0; i < 10; ++i) absl::StrAppend(&ten, "- {name: t", i, ", spec: compute=10%}\n");
  EXPECT_TRUE(ParseConfig(ten, "x").ok());
  EXPECT_EQ(Refused("tenants:\n- {name: a, spec: compute=60%}\n- {name: b, spec: compute=50%}\n"
                    "- {name: c}\n"),
            "broker.yaml:3: tenants: with 'b' guarantees are 110% of a GPU; allowed: up to 100% "
            "for all tenants together");
  EXPECT_THAT(Refused("tenants: [{name: a, spec: memory=60%}, {name: b, spec: memory=50%}]"),
              HasSubstr("memory quotas are 110% of a GPU"));
  // The guarantees of the other tenants fit.
  EXPECT_THAT(Refused("tenants:\n- {name: a, spec: compute=50%}\n- {name: b, spec: compute=70%}\n"
                      "- {name: c, spec: memory=10%}\n- {name: d, spec: compute=5%}\n"),
              HasSubstr("broker.yaml:3: tenants: with 'b' guarantees are 120% of a GPU"));
  EXPECT_THAT(Refused("tenants:\n- {name: a, spec: compute=50%}\n- {name: b, spec: memory=70%}\n"
                      "- {name: c, spec: memory=40%}\n- {name: d, spec: compute=10%}\n"),
              HasSubstr("broker.yaml:4: tenants: with 'c' memory quotas are 110% of a GPU"));
  // On one GPU only.
  EXPECT_THAT(
      Refused(absl::StrCat("tenants:\n- {name: a, spec: compute=40%}\n- name: b\n"
                           "  spec: compute=50%\n  on:\n    ",
                           kGpu, ": compute=70%\n")),
      HasSubstr(absl::StrCat("broker.yaml:6: tenants: with 'b' guarantees are 110% of ", kGpu)));
}

TEST(BrokerConfig, WhatAGpuChangesIsValidWithTheRest) {
  EXPECT_THAT(
      Refused(absl::StrCat("tenants:\n- name: a\n  spec: guarantee=50%,cap=60%\n  on:\n    ", kGpu,
                           ": cap=20%\n")),
      HasSubstr(absl::StrCat("broker.yaml:5: tenants[0].on.", kGpu)));
}

TEST(BrokerConfig, ATenantMayHaveAParent) {
  // In whatever order they are. What the children are promised comes out of the parent's.
  const auto config = ParseConfig(
      "tenants:\n- {name: a, parent: team, spec: 'memory=60%,guarantee=40%'}\n"
      "- {name: team, spec: 'memory=70%,guarantee=60%'}\n"
      "- {name: b, parent: team, spec: 'memory=60%,guarantee=20%'}\n"
      "- {name: c, spec: 'memory=30%,guarantee=40%'}\n",
      "broker.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tenants[0].parent, "team");
  EXPECT_EQ(config->tenants[1].parent, "");
}

TEST(BrokerConfig, RefusesParentsThatAreNone) {
  const std::string team = "tenants:\n- name: team\n  spec: memory=4GiB\n";
  EXPECT_EQ(Refused(team + "- name: a\n  parent: tema\n"),
            "broker.yaml:5: tenants[1].parent: there is no tenant 'tema'; allowed: the name of "
            "another tenant of this file");
  EXPECT_EQ(Refused(team + "- name: a\n  spec: ''\n  parent: a\n"),
            "broker.yaml:6: tenants[1].parent: parents in a circle: 'a' in 'a'; allowed: a tenant "
            "without a parent");
  EXPECT_THAT(Refused("tenants:\n- {name: a, parent: b}\n- {name: b, parent: c}\n"
                      "- {name: c, parent: a}\n"),
              HasSubstr("parents in a circle: 'c' in 'a' in 'b' in 'c'"));
  EXPECT_THAT(Refused(team + "- {name: a, parent: [team]}\n"), HasSubstr("the name of a tenant"));
  EXPECT_THAT(Refused(team + "- {name: a, parent: ''}\n"), HasSubstr("broker.yaml:4: tenants[1]"));
  const absl::Status deep =
      ParseConfig(team + "- name: a\n  parent: team\n- name: b\n  parent: a\n", "broker.yaml")
          .status();
  EXPECT_TRUE(absl::IsUnimplemented(deep));
  EXPECT_EQ(deep.message(),
            "broker.yaml:7: tenants[2].parent: 'a' has a parent itself, 'team'; budgets inside "
            "budgets are one level deep: name a tenant without a parent");
}

TEST(BrokerConfig, ChildrenHaveNoMoreThanTheirParent) {
  EXPECT_EQ(Refused("tenants:\n- name: team\n- name: a\n  parent: team\n"),
            "broker.yaml:3: tenants[1]: tenant 'a': its parent 'team' has no memory quota, which "
            "its children would be within; give it 'memory'");
  const std::string team = "tenants:\n- {name: team, spec: 'memory=4GiB,guarantee=50%'}\n";
  EXPECT_EQ(Refused(team + "- {name: a, parent: team, spec: guarantee=30%}\n"
                           "- {name: b, parent: team, spec: compute=30%}\n"),
            "broker.yaml:4: tenants[2]: tenant 'b': a guarantee of 30% asked, 20% left of the 50% "
            "of its parent 'team' (30% guaranteed to its other children); ask for less ('compute' "
            "or 'guarantee'), or raise the parent's");
  EXPECT_THAT(Refused(team + "- {name: a, parent: team, spec: priority=high}\n"),
              HasSubstr("priority: high given, but its parent 'team' is normal"));
  // On one GPU only, by what either of them has there.
  EXPECT_THAT(Refused(team + "- name: a\n  parent: team\n  on: {" + kGpu + ": priority=high}\n"),
              HasSubstr(absl::StrCat("tenants[1]: on ", kGpu, ": tenant 'a': priority: high")));
  EXPECT_THAT(Refused(absl::StrCat("tenants:\n- name: team\n  spec: memory=4GiB,guarantee=50%\n"
                                   "  on: {",
                                   kGpu, ": guarantee=20%}\n",
                                   "- {name: a, parent: team, spec: guarantee=30%}\n")),
              HasSubstr(absl::StrCat("broker.yaml:5: tenants[1]: on ", kGpu, ": tenant 'a'")));
}

TEST(BrokerConfig, RefusesWhatATenantOfABrokerCannotHave) {
  EXPECT_THAT(Refused("tenants:\n- name: a\n  spec: memory=1GiB,memory_cap=2GiB\n"),
              HasSubstr("broker.yaml:3: tenants[0].spec: spec field 'memory_cap'"));
  EXPECT_THAT(Refused("tenants:\n- name: a\n  spec: isolation=context\n"),
              HasSubstr("spec field 'isolation'"));
  EXPECT_TRUE(ParseConfig("tenants:\n- name: a\n  spec: isolation=process\n", "broker.yaml").ok());
  EXPECT_THAT(Refused(absl::StrCat("tenants:\n- name: a\n  spec: memory=1GiB\n  on:\n    ", kGpu,
                                   ": memory_cap=4GiB\n")),
              HasSubstr(absl::StrCat("broker.yaml:5: tenants[0].on.", kGpu)));
}

TEST(BrokerConfig, RefusesWhatIsNoYamlOrTooMuchOfIt) {
  EXPECT_THAT(Refused("a: [b\nc: d"), HasSubstr("this is not YAML"));
  EXPECT_THAT(Refused("unlisted: \xff"), HasSubstr("UTF-8"));
  EXPECT_THAT(Refused(std::string("a\0b", 3)), HasSubstr("zero byte"));
  EXPECT_THAT(Refused("unlisted: true\n---\nunlisted: true\n"), HasSubstr("a second document"));
  EXPECT_THAT(Refused("tenants: !!seq []"), HasSubstr("tags are not allowed"));
  EXPECT_THAT(Refused(std::string(yaml::kMostBytes + 1, '#')), HasSubstr("bytes given, at most"));
  EXPECT_THAT(Refused(std::string(100, '[')), HasSubstr("deep"));
  std::string many = "tenants: [";
  for (size_t i = 0; i <= yaml::kMostNodes; ++i) many += "a,";
  EXPECT_THAT(Refused(many + "]"), HasSubstr("values"));
}

// Each line has nine times the values of the previous one: 9^9 values, from 300 bytes of text.
TEST(BrokerConfig, RefusesABomb) {
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'j'; ++c) {
    const char last = static_cast<char>(c - 1);
    absl::StrAppend(&bomb, std::string(1, c), ": &", std::string(1, c), " [");
    for (int i = 0; i < 9; ++i) absl::StrAppend(&bomb, i > 0 ? "," : "", "*", std::string(1, last));
    absl::StrAppend(&bomb, "]\n");
  }
  EXPECT_EQ(Refused(bomb), "broker.yaml:1: anchors (&name) are not allowed");
  EXPECT_THAT(Refused("a: *b"), ::testing::AnyOf(HasSubstr("alias"), HasSubstr("not YAML")));
}

TEST(BrokerConfig, WhatCanHardlyBeMeantIsSaid) {
  const auto doubts = [](const std::string& yaml) {
    const absl::StatusOr<Config> config = ParseConfig(yaml, "broker.yaml");
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? DoubtsOf(*config) : std::vector<std::string>();
  };
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  const std::string guaranteed = "  - {name: b, spec: 'guarantee=30%'}\n";
  EXPECT_THAT(
      doubts("tenants:\n  - {name: a, spec: priority=high}\n" + guaranteed),
      ElementsAre(
          "'a': priority=high without a cap; while there is work of it, nothing is left of what is "
          "guaranteed to 'b'. Give it a 'cap'"));
  EXPECT_THAT(doubts("tenants:\n  - {name: a, spec: 'priority=high,cap=80%'}\n" + guaranteed),
              ElementsAre("the caps of tenants of high priority are 80 % together, and what is "
                          "guaranteed to 'b' is "
                          "30 %: it does not hold while those use their caps"));
  EXPECT_THAT(doubts("tenants:\n  - {name: a, spec: 'priority=high,cap=70%'}\n" + guaranteed),
              IsEmpty());
  EXPECT_THAT(doubts("tenants:\n  - {name: a, spec: priority=high}\n  - {name: b}\n"), IsEmpty());
  EXPECT_THAT(doubts("tenants:\n" + guaranteed), IsEmpty());
  EXPECT_THAT(doubts("unlisted: true\n"), IsEmpty());
  EXPECT_THAT(doubts("tenants: []\n"),
              ElementsAre("no tenant is listed and 'unlisted' is false: no process may register"));
  // Reported for the one GPU only, and once for all GPUs together.
  EXPECT_THAT(
      doubts(
          "tenants:\n  - name: a\n    spec: priority=high,cap=50%\n    on: {GPU-1: {cap: 100%}}\n" +
          guaranteed),
      ElementsAre(
          "'a': priority=high without a cap; while there is work of it, nothing is left of what is "
          "guaranteed to 'b'. Give it a 'cap' (on GPU-1)"));
  EXPECT_THAT(doubts("tenants:\n  - {name: a, spec: priority=high, on: {GPU-1: {memory: 1GiB}}}\n" +
                     guaranteed)
                  .size(),
              1u);
}

TEST(BrokerConfig, ReadsAddresses) {
  EXPECT_EQ(*ParseAddress("127.0.0.1:9410"), "127.0.0.1:9410");
  EXPECT_EQ(*ParseAddress("9410"), "127.0.0.1:9410");
  EXPECT_EQ(*ParseAddress("[::1]:0"), "[::1]:0");
  EXPECT_EQ(*ParseAddress("0.0.0.0:65535"), "0.0.0.0:65535");
  for (const char* text :
       {"", ":", "localhost:1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:9410",
        "127.0.0.1:-1", "127.0.0.1: 1", "[::1]", "[]:1", "1.2.3:4", "+1", "999999"}) {
    EXPECT_EQ(ParseAddress(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(Refused("metrics: localhost"),
              HasSubstr("metrics: 'localhost' given; allowed: an IP address"));
  EXPECT_THAT(Refused("socket: broker.sock"), HasSubstr("an absolute path whose last name"));
  EXPECT_THAT(Refused("socket: /run/" + std::string(81, 'a')), HasSubstr("up to 80"));
}

class BrokerConfigFile : public ::testing::Test {
 protected:
  BrokerConfigFile() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~BrokerConfigFile() override {
    for (const char* name : {"/file", "/pipe"}) unlink((folder_ + name).c_str());
    rmdir(folder_.c_str());
  }
  std::string folder_ = ::testing::TempDir() + "config_test_XXXXXX";
};

TEST_F(BrokerConfigFile, IsRead) {
  std::ofstream(folder_ + "/file") << "unlisted: true\n";
  const auto config = LoadConfig(folder_ + "/file");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->unlisted);
  std::ofstream(folder_ + "/file") << "unlisted: maybe\n";
  EXPECT_THAT(std::string(LoadConfig(folder_ + "/file").status().message()),
              StartsWith(folder_ + "/file:1: unlisted:"));
}

TEST_F(BrokerConfigFile, MayNotBeThere) {
  EXPECT_EQ(LoadConfig(folder_ + "/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadConfig(folder_).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(LoadConfig(folder_ + "/pipe").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LoadConfig("/dev/zero").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BrokerConfig, TheContainersExampleIsValid) {
  const char* const source = std::getenv("GPUSHARE_SOURCE");
  ASSERT_NE(source, nullptr);
  const auto config = LoadConfig(std::string(source) + "/share/container/broker.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->tenants.size(), 2u);
}

// Checks the example of docs/broker.md, which people copy.
TEST(BrokerConfig, TheDocumentedExampleIsValid) {
  const char* const source = std::getenv("GPUSHARE_SOURCE");
  ASSERT_NE(source, nullptr);
  std::stringstream page;
  page << std::ifstream(std::string(source) + "/docs/broker.md").rdbuf();
  const std::string text = page.str();
  int examples = 0;
  for (size_t at = 0; (at = text.find("```yaml\n", at)) != std::string::npos;) {
    const size_t begin = at + 8, end = text.find("```", begin);
    ASSERT_NE(end, std::string::npos);
    const auto config = ParseConfig(text.substr(begin, end - begin), "docs/broker.md");
    EXPECT_TRUE(config.ok()) << config.status();
    at = end;
    ++examples;
  }
  EXPECT_GE(examples, 1);
}

}  // namespace
}  // namespace gpushare::broker
