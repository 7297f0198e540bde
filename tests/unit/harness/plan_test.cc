// SPDX-License-Identifier: Apache-2.0
#include "harness/plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "harness/start.h"

namespace gpushare::harness {
namespace {

TEST(Plan, RoundTrips) {
  Plan plan;
  plan.barrier = "/tmp/x/start";
  plan.parties = 3;
  plan.driver = "/tmp/x/driver.so";
  plan.outcome = "/tmp/x/outcome";
  plan.length = Seconds(4);
  plan.sample = Millis(10);
  plan.fine = Micros(100);
  plan.tolerant = true;
  plan.tenants.push_back({.name = "a",
                          .trace = "a.csv",
                          .spec = "weight=3",
                          .plays = false,
                          .mode = player::PlayMode::kOpenLoop,
                          .high_priority = true,
                          .arrivals = {Nanos(5)},
                          .absences = {{Nanos(7), Nanos(9)}},
                          .batches = {{8, 1, 2}},
                          .batch_wait = Micros(3),
                          .allocations = {{1, 2}, {MemoryFamily::kVirtual}, 3, Millis(4)},
                          .fault = {Fault::Kind::kEndlessKernel, Millis(7), 66}});
  const auto read = ParsePlan(FormatPlan(plan));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->parties, 3u);
  EXPECT_EQ(read->length, Seconds(4));
  EXPECT_EQ(read->fine, Micros(100));
  ASSERT_EQ(read->tenants.size(), 1u);
  EXPECT_EQ(read->tenants[0].mode, player::PlayMode::kOpenLoop);
  EXPECT_TRUE(read->tenants[0].high_priority);
  EXPECT_TRUE(read->tolerant);
  EXPECT_FALSE(read->calls);
  EXPECT_FALSE(read->tenants[0].plays);
  EXPECT_EQ(read->tenants[0].allocations, plan.tenants[0].allocations);
  EXPECT_EQ(read->tenants[0].fault, plan.tenants[0].fault);
  EXPECT_EQ(read->tenants[0].arrivals, std::vector<Nanos>{Nanos(5)});
  ASSERT_EQ(read->tenants[0].batches.size(), 1u);
  EXPECT_EQ(read->tenants[0].batches[0].most, 8u);
  EXPECT_EQ(read->tenants[0].batches[0].first_step, 1u);
  EXPECT_EQ(read->tenants[0].batches[0].steps, 2u);
  EXPECT_EQ(read->tenants[0].batch_wait, Micros(3));
  ASSERT_EQ(read->tenants[0].absences.size(), 1u);
  EXPECT_EQ(read->tenants[0].absences[0].from, Nanos(7));
  EXPECT_EQ(read->tenants[0].absences[0].to, Nanos(9));
  for (const char* text : {"", "{", "[]", "{}", "{\"barrier\":5}"}) {
    EXPECT_EQ(ParsePlan(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(ParseOutcome(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Plan, OutcomesRoundTrip) {
  Outcome outcome = {"", {{"a", {0, 5, 9}, {{Nanos(1), Nanos(2), Nanos(3)}}, {}, 7, {0, 1}}}};
  outcome.tenants[0].work_ns = {0, 6, 10};
  outcome.tenants[0].away = {{Nanos(3), Nanos(4)}};
  outcome.tenants[0].memory = {{Nanos(3), 256, 128, true}};
  outcome.tenants[0].most_bytes = 384;
  outcome.tenants[0].error = "lost";
  outcome.tenants[0].broke_at = Nanos(5);
  outcome.calls = {{"launch", 150, 100, 1.5}};
  outcome.setup_cpu_ns = 11;
  outcome.play_cpu_ns = 12;
  outcome.ready_ns = {13};
  const auto read = ParseOutcome(FormatOutcome(outcome));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->tenants.size(), 1u);
  EXPECT_EQ(read->tenants[0].used_ns, (std::vector<int64_t>{0, 5, 9}));
  ASSERT_EQ(read->tenants[0].requests.size(), 1u);
  EXPECT_EQ(read->tenants[0].requests[0].latency, Nanos(2));
  EXPECT_EQ(read->tenants[0].requests[0].begun, Nanos(3));
  EXPECT_EQ(read->tenants[0].work_ns, (std::vector<int64_t>{0, 6, 10}));
  EXPECT_EQ(read->tenants[0].launches, 7u);
  ASSERT_EQ(read->tenants[0].away.size(), 1u);
  EXPECT_EQ(read->tenants[0].away[0].to, Nanos(4));
  EXPECT_EQ(read->tenants[0].fine_ns, (std::vector<int64_t>{0, 1}));
  ASSERT_EQ(read->tenants[0].memory.size(), 1u);
  EXPECT_EQ(read->tenants[0].memory[0].held, 128u);
  EXPECT_TRUE(read->tenants[0].memory[0].granted);
  EXPECT_EQ(read->tenants[0].most_bytes, 384u);
  EXPECT_EQ(read->tenants[0].error, "lost");
  EXPECT_EQ(read->tenants[0].broke_at, Nanos(5));
  ASSERT_EQ(read->calls.size(), 1u);
  EXPECT_EQ(read->calls[0].call, "launch");
  EXPECT_EQ(read->calls[0].ratio, 1.5);
  EXPECT_EQ(read->setup_cpu_ns + read->play_cpu_ns, 23);
  EXPECT_EQ(read->ready_ns, std::vector<int64_t>{13});
}

TEST(Plan, FineSamplesAreTextOfWhatEachIsMoreThanTheOneBefore) {
  Outcome outcome;
  outcome.tenants.emplace_back().fine_ns = {0, 50'000, 50'000, 49'999, INT64_MAX, INT64_MIN};
  const std::string text = FormatOutcome(outcome);
  const std::string words = "\"fine\":\"0 50000 0 -1 ";
  ASSERT_NE(text.find(words), std::string::npos) << text;
  const auto read = ParseOutcome(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->tenants[0].fine_ns, outcome.tenants[0].fine_ns);
  for (const std::string bad : {"\"fine\":\"0 5000x 0 -1 ", "\"fine\":\"0  50000 0 -1 ",
                                "\"fine\":\"99999999999999999999 "}) {
    std::string changed = text;
    changed.replace(changed.find(words), words.size(), bad);
    EXPECT_EQ(ParseOutcome(changed).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Plan, CountsOfAnOutcomeAreWholeNumbers) {
  Outcome outcome;
  outcome.tenants.emplace_back().used_ns = {1234567};
  std::string text = FormatOutcome(outcome);
  text.replace(text.find("1234567"), 7, "4e56");
  EXPECT_EQ(std::string(ParseOutcome(text).status().message()),
            "outcome: a whole number is wanted");
}

TEST(StartLine, AllBeginWhenTheLastIsReady) {
  const std::string path = ::testing::TempDir() + "/start-line";
  std::filesystem::remove(path);
  ASSERT_TRUE(StartLine::Make(path).ok());
  EXPECT_FALSE(StartLine::Make(path).ok());  // the path exists already
  auto a = StartLine::Open(path), b = StartLine::Open(path);
  ASSERT_TRUE(a.ok() && b.ok());
  a->Ready(Time(Seconds(2)));
  EXPECT_FALSE(a->begins(2).has_value());
  b->Ready(Time(Seconds(1)));
  EXPECT_EQ(a->begins(2), Time(Seconds(2)) + StartLine::kAfterTheLast);
  EXPECT_EQ(b->begins(2), a->begins(2));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace gpushare::harness
