// SPDX-License-Identifier: Apache-2.0
#include "broker/event_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <string>

#include "base/unique_fd.h"

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

// A reader that takes a page at a time, and only when the test reads.
class SlowReader {
 public:
  SlowReader() : before_(dup(STDERR_FILENO)) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    read_.Reset(ends[0]);
    base::UniqueFd writes(ends[1]);
    fcntl(read_.get(), F_SETFL, O_NONBLOCK);
    // The kernel gives a page at least.
    EXPECT_EQ(fcntl(writes.get(), F_SETPIPE_SZ, kPage), kPage);
    dup2(writes.get(), STDERR_FILENO);
  }
  ~SlowReader() { dup2(before_.get(), STDERR_FILENO); }
  std::string Read() {
    std::array<char, 2 * kPage> bytes;
    const ssize_t length = read(read_.get(), bytes.data(), bytes.size());
    return length <= 0 ? "" : std::string(bytes.data(), static_cast<size_t>(length));
  }
  static constexpr int kPage = 4096;

 private:
  base::UniqueFd before_, read_;
};

TEST_F(BrokerLog, WaitsForNoReader) {
  const auto write = [](const EventLog& log, size_t more) {
    log.Info("long", {{"a", std::string(990, 'a')},
                      {"b", std::string(990, 'b')},
                      {"c", std::string(990, 'c')},
                      {"d", std::string(900, 'd')},
                      {"more", std::string(more, 'e')}});
  };
  write(With(LogLevel::kInfo, LogFormat::kLogfmt), 1);
  const size_t most = 1 + SlowReader::kPage - said_.size();  // fills a page
  ASSERT_LT(most, 1000u);
  SlowReader reader;
  const EventLog log({});
  for (int i = 0; i < 10; ++i) log.Info("fills");
  EXPECT_NE(reader.Read(), "");
  // There is room for the line, or for what tells of the lost ones, and not for both.
  auto written = std::async(std::launch::async, [&] { write(log, most); });
  EXPECT_EQ(written.wait_for(std::chrono::seconds(5)), std::future_status::ready) << "it waits";
  reader.Read();
  written.wait();
  reader.Read();
  log.Info("more");
  const std::string said = reader.Read();
  EXPECT_EQ(said.substr(0, said.find('\n')), "event=log_lines_lost lines=10");
  EXPECT_NE(said.find("event=more"), std::string::npos) << said;
}

}  // namespace
}  // namespace gpushare::broker
