// SPDX-License-Identifier: Apache-2.0
#include "gate/recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace gpushare::gate {
namespace {

TraceEvent Numbered(int64_t n) {
  return {.kind = TraceEvent::Kind::kWait,
          .begin = Time(Nanos(n)),
          .end = Time(Nanos(2 * n)),
          .value = n};
}

TEST(RecorderTest, IsOffUntilStarted) {
  Recorder recorder;
  EXPECT_FALSE(recorder.on());
  recorder.Record(Numbered(1), "a");
  uint64_t lost = 0;
  EXPECT_TRUE(recorder.Read(10, &lost).empty());
  recorder.Start(4);
  EXPECT_TRUE(recorder.on());
  EXPECT_TRUE(recorder.Read(10, &lost).empty());
  EXPECT_EQ(lost, 0u);
}

TEST(RecorderTest, GivesBackEveryField) {
  Recorder recorder;
  recorder.Start(4);
  const std::string name(Recorder::kMostName, 'x');
  recorder.Record({.kind = TraceEvent::Kind::kDevice,
                   .flags = TraceEvent::kForLease | TraceEvent::kDeviceFull,
                   .count = 0xffffffff,
                   .begin = Time(Nanos(-5)),
                   .end = Time(Nanos(INT64_MAX)),
                   .value = -7,
                   .other = UINT64_MAX},
                  name + "longer");
  recorder.Record(Numbered(3), "");
  uint64_t lost = 0;
  const std::vector<NamedEvent> events = recorder.Read(10, &lost);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].tenant, name);
  EXPECT_EQ(events[0].event.kind, TraceEvent::Kind::kDevice);
  EXPECT_EQ(events[0].event.flags, TraceEvent::kForLease | TraceEvent::kDeviceFull);
  EXPECT_EQ(events[0].event.count, 0xffffffff);
  EXPECT_EQ(events[0].event.begin, Time(Nanos(-5)));
  EXPECT_EQ(events[0].event.end, Time(Nanos(INT64_MAX)));
  EXPECT_EQ(events[0].event.value, -7);
  EXPECT_EQ(events[0].event.other, UINT64_MAX);
  EXPECT_EQ(events[1].tenant, "");
  EXPECT_EQ(events[1].event.value, 3);
}

TEST(RecorderTest, KeepsTheLatestAndCountsTheRest) {
  Recorder recorder;
  recorder.Start(8);
  for (int n = 0; n < 20; ++n) recorder.Record(Numbered(n), "a");
  uint64_t lost = 0;
  std::vector<NamedEvent> events = recorder.Read(3, &lost);
  EXPECT_EQ(lost, 12u);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].event.value, 12);
  events = recorder.Read(100, &lost);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events.back().event.value, 19);
  EXPECT_EQ(lost, 12u);
}

TEST(RecorderTest, ReadsAfterStoppingAndForgetsWhenStartedAgain) {
  Recorder recorder;
  recorder.Start(8);
  recorder.Record(Numbered(1), "a");
  recorder.Stop();
  recorder.Record(Numbered(2), "a");
  uint64_t lost = 0;
  ASSERT_EQ(recorder.Read(10, &lost).size(), 1u);
  recorder.Start(8);
  recorder.Record(Numbered(3), "a");
  recorder.Start(64);  // a larger ring
  recorder.Record(Numbered(4), "a");
  const std::vector<NamedEvent> events = recorder.Read(10, &lost);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].event.value, 4);
  EXPECT_EQ(lost, 0u);
}

// Every event is either delivered completely and once, or counted as lost.
TEST(RecorderTest, LosesNoneUncounted) {
  constexpr int kThreads = 3, kEvents = 20000;
  Recorder recorder;
  recorder.Start(256);
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "tenant " + std::to_string(t);
      for (int n = 0; n < kEvents; ++n) recorder.Record(Numbered(t * kEvents + n), name);
      running.fetch_sub(1);
    });
  }
  uint64_t lost = 0, came = 0;
  std::vector<int64_t> last(kThreads, -1);
  const auto take = [&] {
    for (const NamedEvent& e : recorder.Read(1000, &lost)) {
      const auto t = static_cast<size_t>(e.event.value / kEvents);
      ASSERT_EQ(e.tenant, "tenant " + std::to_string(t));
      ASSERT_EQ(e.event.end.time_since_epoch().count(), 2 * e.event.value);
      ASSERT_GT(e.event.value, last[t]);  // each thread's events are in order
      last[t] = e.event.value;
      ++came;
    }
  };
  while (running.load() > 0) take();
  for (std::thread& thread : threads) thread.join();
  recorder.Stop();
  take();
  EXPECT_EQ(came + lost, static_cast<uint64_t>(kThreads) * kEvents);
  EXPECT_GE(came, 256u - kThreads);  // the ring's content at the end, except for collisions
}

}  // namespace
}  // namespace gpushare::gate
