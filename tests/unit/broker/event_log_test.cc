// SPDX-License-Identifier: Apache-2.0
#include "broker/event_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace gpushare::broker {
namespace {

class BrokerLog : public ::testing::Test {
 protected:
  EventLog With(LogLevel level, LogFormat format) {
    return EventLog({.level = level,
                     .format = format,
                     .sink = [this](std::string_view line) { said_ += line; },
                     .wall_clock = [] { return int64_t{1'700'000'000'007'000'000}; }});
  }
  std::string said_;
};

TEST_F(BrokerLog, WritesOneLineAnEvent) {
  const EventLog log = With(LogLevel::kInfo, LogFormat::kLogfmt);
  log.Info("session_begins", {{"tenant", "trainer 1"}, {"pid", 4242}, {"gpu", "GPU-1"}});
  log.Error("stopped");
  EXPECT_EQ(said_,
            "time=2023-11-14T22:13:20.007Z level=info event=session_begins tenant=\"trainer 1\" "
            "pid=4242 gpu=GPU-1\n"
            "time=2023-11-14T22:13:20.007Z level=error event=stopped\n");
}

TEST_F(BrokerLog, NobodyForgesALine) {
  const EventLog log = With(LogLevel::kInfo, LogFormat::kLogfmt);
  log.Info("refused", {{"program", "a\nlevel=error event=\"x\" \xff"}, {"empty", ""}});
  EXPECT_EQ(std::count(said_.begin(), said_.end(), '\n'), 1);
  EXPECT_NE(said_.find(R"(program="a\u000alevel=error event=\"x\")"), std::string::npos) << said_;
  EXPECT_NE(said_.find(" empty=\"\""), std::string::npos);
}

TEST_F(BrokerLog, LeavesOutWhatIsBelowItsLevel) {
  const EventLog log = With(LogLevel::kWarning, LogFormat::kLogfmt);
  log.Debug("a");
  log.Info("b");
  EXPECT_EQ(said_, "");
  log.Warning("c");
  EXPECT_NE(said_, "");
}

TEST_F(BrokerLog, WritesJson) {
  With(LogLevel::kDebug, LogFormat::kJson)
      .Debug("asked", {{"what", "\"list\"\n"}, {"bytes", uint64_t{1} << 63}});
  ASSERT_EQ(said_.back(), '\n');
  const nlohmann::json line = nlohmann::json::parse(said_);
  EXPECT_EQ(line["time"], "2023-11-14T22:13:20.007Z");
  EXPECT_EQ(line["level"], "debug");
  EXPECT_EQ(line["event"], "asked");
  EXPECT_EQ(line["what"], "\"list\"\n");
  EXPECT_EQ(line["bytes"], uint64_t{1} << 63);
}

}  // namespace
}  // namespace gpushare::broker
