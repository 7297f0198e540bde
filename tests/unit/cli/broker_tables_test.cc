// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/broker/change.h"
#include "cli/broker/figures.h"
#include "cli/broker/list.h"
#include "cli/broker/top.h"
#include "cli/broker/top_table.h"
#include "tests/unit/broker/snapshots.h"

namespace gpushare::cli {
namespace {

using broker::Snapshot;
using broker::TwoTenants;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(BrokerList, ShowsTenantsAndTheirProcesses) {
  Snapshot snapshot = TwoTenants();
  snapshot.shares[0].labels.clear();
  snapshot.shares[0].processes[0].memory_overhead = 300 << 20;
  EXPECT_EQ(
      ListText(snapshot),
      "GPU-6f1c4f0e-1f7c-4c3a-9d53-0b6d8a2f1e11: 8 GiB of 140 GiB promised, 50.0 % guaranteed\n"
      "tenant   pid  memory     of   peak  overhead  time used  spec, program                      "
      "    state\n"
      "------  ----  ------  -----  -----  --------  ---------  -----------------------------------"
      "--  --------------------------------\n"
      "online         3 GiB  8 GiB  5 GiB   300 MiB     90.0 s  memory=8GiB,compute=50%,"
      "priority=high\n"
      "        4242   2 GiB  3 GiB          300 MiB     60.0 s  serve\n"
      "        4243   1 GiB  1 GiB                -     30.0 s  serve                              "
      "    gone, its memory is not free yet\n"
      "batch            0 B      -    0 B         -      0.0 s                                     "
      "    suspended\n");
  snapshot.shares[0].processes[1].evicted = true;
  EXPECT_THAT(ListText(snapshot), HasSubstr("  evicted, its memory is not free yet\n"));
  EXPECT_THAT(ListText(snapshot, "batch"), Not(HasSubstr("online")));
  EXPECT_EQ(ListText(snapshot, "nobody"), "no process has opened a GPU yet\n");
}

TEST(BrokerList, ShowsWhatTheAuditFound) {
  Snapshot snapshot = TwoTenants();
  snapshot.shares[0].processes[0].audit = broker::AuditResult::kUnderstates;
  snapshot.shares[0].processes[0].memory_by_driver = uint64_t{5} << 30;
  snapshot.gpus[0].strangers = {{.pid = 77, .program = "game\x1b", .memory_by_driver = 1 << 30}};
  const std::string text = ListText(snapshot);
  EXPECT_THAT(text,
              HasSubstr("serve                                  holds more than it says: 5 GiB\n"));
  EXPECT_THAT(text, HasSubstr("\n(none)    77   1 GiB"));
  EXPECT_THAT(text, HasSubstr("game\\x1b                               no tenant's\n"));
  EXPECT_THAT(ListText(snapshot, "online"), Not(HasSubstr("game")));  // it is of no tenant
}

TEST(BrokerList, ShowsWhatTheAuditFoundOfTime) {
  Snapshot snapshot = TwoTenants();
  snapshot.shares[0].processes[0].audit = broker::AuditResult::kUnderstatesTime;
  EXPECT_THAT(ListText(snapshot), HasSubstr("  runs longer than it says\n"));
  snapshot.shares[0].processes[0].audit = broker::AuditResult::kRunsPastGpushare;
  EXPECT_THAT(ListText(snapshot), HasSubstr("  runs past gpushare\n"));
}

broker::Snapshot WithAFamily() {
  Snapshot snapshot = TwoTenants();
  snapshot.shares[0].parent = "team";
  broker::Share team;
  team.gpu = broker::kGpuOfTwo;
  team.tenant = "team";
  team.memory_limit = uint64_t{16} << 30;
  team.memory_used = snapshot.shares[0].memory_used;
  snapshot.shares.push_back(team);
  return snapshot;
}

TEST(BrokerList, ShowsChildrenBelowTheirParent) {
  const std::string text = ListText(WithAFamily());
  const size_t batch = text.find("\nbatch "), team = text.find("\nteam "),
               online = text.find("\n  online ");
  ASSERT_NE(online, std::string::npos) << text;
  EXPECT_LT(batch, team);
  EXPECT_LT(team, online);
  EXPECT_LT(online, text.find(" 4242 "));
  const std::string family = ListText(WithAFamily(), "team");
  EXPECT_THAT(family, HasSubstr("\n  online "));
  EXPECT_THAT(family, Not(HasSubstr("batch")));
}

// Its limits are those of all of them, so what it got is, too.
TEST(BrokerTop, AParentGotWhatItsChildrenGot) {
  const Snapshot before = WithAFamily();
  Snapshot now = before;
  now.at += Millis(500);
  now.shares[0].time_used += Millis(200);
  now.shares[2].time_used += Millis(50);
  now.shares[2].launches += 7;
  const nlohmann::json json = nlohmann::json::parse(TopJson(&before, now));
  EXPECT_EQ(json["shares"][0]["parent"], "team");
  EXPECT_NEAR(json["shares"][0]["got"], 0.4, 1e-9);
  EXPECT_NEAR(json["shares"][2]["got"], 0.5, 1e-9);
  EXPECT_EQ(json["shares"][2]["launches_per_s"], 14);
  EXPECT_THAT(TopText(&before, now), HasSubstr("\n  online "));
}

TEST(BrokerTop, ShowsRatesOfTheInterval) {
  const Snapshot before = TwoTenants();
  Snapshot now = before;
  now.at += Millis(500);
  broker::Share& online = now.shares[0];
  online.time_used += Millis(200);
  online.throttled += Millis(50);
  online.launches += 1000;
  online.waits += 3;
  online.processes[0].time_used += Millis(200);
  const std::string text = TopText(&before, now);
  EXPECT_THAT(
      text,
      HasSubstr("\nonline         3 GiB  8 GiB  50 %, high  40.0 %     10.0 %  6.0/s    2000/s\n"))
      << text;
  EXPECT_THAT(text, HasSubstr("\n        4242   2 GiB  3 GiB              40.0 %"));
  EXPECT_THAT(text, HasSubstr("  weight 1     0.0 %"));

  const nlohmann::json json = nlohmann::json::parse(TopJson(&before, now));
  EXPECT_EQ(json["interval_s"], 0.5);
  EXPECT_NEAR(json["shares"][0]["got"], 0.4, 1e-9);
  EXPECT_NEAR(json["shares"][0]["throttled"], 0.1, 1e-9);
  EXPECT_EQ(json["shares"][0]["launches_per_s"], 2000);
  EXPECT_NEAR(json["shares"][0]["processes"][0]["got"], 0.4, 1e-9);
  EXPECT_EQ(TopJson(&before, now).find('\n'), TopJson(&before, now).size() - 1);
}

// Processes whose slices overlap each measure the other's time as their own.
TEST(BrokerTop, NobodyGetsMoreThanThereIs) {
  const Snapshot before = TwoTenants();
  Snapshot now = before;
  now.at += Seconds(1);
  now.shares[0].time_used += Millis(900);
  now.shares[0].processes[0].time_used += Millis(900);
  now.shares[1].time_used += Millis(600);
  nlohmann::json json = nlohmann::json::parse(TopJson(&before, now));
  EXPECT_NEAR(json["shares"][0]["got"], 0.6, 1e-9);
  EXPECT_NEAR(json["shares"][0]["processes"][0]["got"], 0.6, 1e-9);
  EXPECT_NEAR(json["shares"][1]["got"], 0.4, 1e-9);
  EXPECT_THAT(TopText(&before, now), HasSubstr(" 60.0 %"));
  // A tenant that is alone, and figures of a process that come late.
  now.shares[1].time_used = before.shares[1].time_used;
  now.shares[0].time_used = before.shares[0].time_used + Millis(1010);
  now.shares[0].processes[0].time_used = before.shares[0].processes[0].time_used + Millis(1200);
  json = nlohmann::json::parse(TopJson(&before, now));
  EXPECT_NEAR(json["shares"][0]["got"], 1010.0 / 1200, 1e-9);
  EXPECT_EQ(json["shares"][0]["processes"][0]["got"], 1);
  EXPECT_THAT(TopText(&before, now), Not(HasSubstr("120.0 %")));
}

// No figures are shown if there is nothing to compare with.
TEST(BrokerTop, KnowsWhatItDoesNotKnow) {
  const Snapshot first = TwoTenants();
  EXPECT_TRUE(nlohmann::json::parse(TopJson(nullptr, first))["shares"][0]["got"].is_null());
  EXPECT_THAT(TopText(nullptr, first), HasSubstr("50 %, high    -          -      -         -\n"));

  Snapshot now = first;
  now.at += Seconds(1);
  now.shares[0].launches = 0;  // the figures of another broker
  now.shares[1].tenant = "new";
  now.shares[0].processes[0].session = 77;
  const nlohmann::json json = nlohmann::json::parse(TopJson(&first, now));
  EXPECT_TRUE(json["shares"][0]["got"].is_null());
  EXPECT_TRUE(json["shares"][1]["got"].is_null());
  EXPECT_TRUE(json["shares"][0]["processes"][0]["got"].is_null());
  EXPECT_EQ(json["shares"][0]["processes"][1]["got"], 0);

  now = first;  // at the same time
  EXPECT_TRUE(nlohmann::json::parse(TopJson(&first, now))["shares"][0]["got"].is_null());
}

TEST(BrokerTop, FitsATerminal) {
  const std::string text = "abcdef\ngh\u00fc\u00fc\u00fc\n\nlast\n";
  EXPECT_EQ(CutForTerminal(text, 4, 10), "abcd\ngh\u00fc\u00fc\n\nlast\n");
  EXPECT_EQ(CutForTerminal(text, 80, 3), "abcdef\ngh\u00fc\u00fc\u00fc\n");  // a row for the cursor
  EXPECT_EQ(CutForTerminal("no end", 80, 3), "no end\n");
  EXPECT_EQ(CutForTerminal("", 80, 24), "");
}

TEST(BrokerFigures, AskedIsWhatWasPromised) {
  broker::Share share;
  share.weight = 2.5;
  EXPECT_EQ(AskedCell(share), "weight 2.5");
  share.cap = 0.8;
  EXPECT_EQ(AskedCell(share), "weight 2.5, at most 80 %");
  share.guarantee = 0.125;
  EXPECT_EQ(AskedCell(share), "12.5 %, at most 80 %");
  share.priority = "low";
  EXPECT_EQ(AskedCell(share), "12.5 %, at most 80 %, low");
  share.priority = "a\x1b";  // another version's
  EXPECT_EQ(AskedCell(share), "12.5 %, at most 80 %, a\\x1b");
}

TEST(BrokerFigures, NamesAreMadePrintable) {
  EXPECT_EQ(NameCell("a\x1b[2J\n"), "a\\x1b[2J\\x0a");
  EXPECT_EQ(PidCell({}), "?");
}

TEST(BrokerDrain, NamesWhoIsStillThere) {
  const std::vector<std::string> holders = Holders(TwoTenants(), "");
  ASSERT_EQ(holders.size(), 2u);
  EXPECT_EQ(holders[0], std::string("online: 4242 (serve), 2 GiB on ") + broker::kGpuOfTwo);
  EXPECT_EQ(holders[1], std::string("online: 4243 (gone, its memory is not free yet), 1 GiB on ") +
                            broker::kGpuOfTwo);
  EXPECT_EQ(Holders(TwoTenants(), "online").size(), 2u);
  EXPECT_TRUE(Holders(TwoTenants(), "batch").empty());
}

}  // namespace
}  // namespace gpushare::cli
