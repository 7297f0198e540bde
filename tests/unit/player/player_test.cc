// SPDX-License-Identifier: Apache-2.0
#include "player/player.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpushare::player {
namespace {

// A device that runs one command after another, queues up to `depth` of them, and costs its caller 1 us for a launch.
// Its time passes only during its calls.
class FakePort final : public Port {
 public:
  absl::Status Launch(const Step& step) override {
    now_ += Micros(1);
    if (fail_after_ > 0 && --fail_after_ == 0) return absl::InternalError("device lost");
    if (ends_.size() >= depth_) now_ = std::max(now_, ends_[ends_.size() - depth_]);
    const Time start = std::max(now_, ends_.empty() ? Time{} : ends_.back());
    ends_.push_back(start + Nanos(static_cast<int64_t>(step.duration_ns)));
    starts_.push_back(start);
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    if (!ends_.empty()) now_ = std::max(now_, ends_.back());
    ++synchronized_;
    return absl::OkStatus();
  }
  Time Now() override { return now_; }
  void SleepUntil(Time when) override { now_ = std::max(now_, when); }

  Time now_{};
  size_t depth_ = 8;
  int fail_after_ = 0;
  int synchronized_ = 0;
  std::vector<Time> starts_, ends_;
};

// Two kernels of 100 and 50 us.
Program Sample() {
  workload::KernelTrace trace("sample");
  trace.Add("a", workload::Bound::kUnknown, 10, Micros(100));
  trace.Add("b", workload::Bound::kUnknown, 400, Micros(50));
  return MakeProgram(trace, {.sms = 100}, {nullptr, nullptr});
}

constexpr Time At(Nanos since_start) { return Time(since_start); }

TEST(ProgramTest, StepsAreTheTrace) {
  CUfunc_st *a = reinterpret_cast<CUfunc_st*>(8), *b = reinterpret_cast<CUfunc_st*>(16);
  workload::KernelTrace trace("t");
  trace.Add("a", workload::Bound::kUnknown, 10, Micros(100));
  trace.Add("b", workload::Bound::kUnknown, 400, Micros(40));
  trace.Add("a", workload::Bound::kUnknown, 20, Micros(10));
  const Program program = MakeProgram(trace, {.sms = 100}, {a, b});
  ASSERT_EQ(program.steps.size(), 3u);
  EXPECT_EQ(program.steps[0].function, a);
  EXPECT_EQ(program.steps[1].function, b);
  EXPECT_EQ(program.steps[2].function, a);
  EXPECT_EQ(program.steps[1].block_ns, 10'000u) << "four waves";
  EXPECT_EQ(program.duration, Micros(150));
}

TEST(PlayerTest, BacklogKeepsTheDeviceBusyUntilTheEnd) {
  FakePort port;
  PlayResult result;
  ASSERT_TRUE(Play(Sample(), {.end = At(Millis(10))}, port, &result).ok());
  for (size_t i = 1; i < port.starts_.size(); ++i) EXPECT_EQ(port.starts_[i], port.ends_[i - 1]);
  EXPECT_GE(port.ends_.back(), At(Millis(10)));
  EXPECT_LE(port.ends_.back(), At(Millis(10) + 9 * Micros(100)));
  EXPECT_EQ(result.launches, port.ends_.size());
  EXPECT_EQ(result.passes, result.launches / 2);
  EXPECT_EQ(port.synchronized_, 1);
}

TEST(PlayerTest, SyncPerIterationWaitsAfterEachPass) {
  FakePort port;
  PlayResult result;
  ASSERT_TRUE(
      Play(Sample(), {.mode = PlayMode::kSyncPerIteration, .end = At(Millis(3))}, port, &result)
          .ok());
  EXPECT_EQ(result.passes, 20u);  // 1 us of launch and 150 us of kernels each
  EXPECT_EQ(port.synchronized_, 21);
  EXPECT_EQ(result.work, 20 * Micros(150));
}

TEST(PlayerTest, RequestsQueueInOrderOfArrival) {
  FakePort port;
  PlayResult result;
  const PlayOptions options = {.mode = PlayMode::kOpenLoop,
                               .start = At(Millis(1)),
                               .end = At(Millis(3)),
                               .arrivals = {Micros(100), Micros(200), Millis(1), Millis(2)}};
  ASSERT_TRUE(Play(Sample(), options, port, &result).ok());
  ASSERT_EQ(result.requests.size(), 3u) << "the last would arrive at the end";
  EXPECT_EQ(result.requests[0].latency, Micros(151));
  // They arrived while the first was being served, which counts as latency.
  EXPECT_EQ(result.requests[1].latency, Micros(51 + 151));
  EXPECT_EQ(result.requests[2].latency, Micros(151));
}

// A pass with a kernel of 100 us for one request, and a pass with one of 250 us for up to three.
Program Batched() {
  workload::KernelTrace trace("batched");
  trace.Add("one", workload::Bound::kUnknown, 10, Micros(100));
  trace.Add("three", workload::Bound::kUnknown, 10, Micros(250));
  return MakeProgram(trace, {.sms = 100}, {nullptr, nullptr});
}

PlayOptions InBatches(std::vector<Nanos> arrivals, Nanos wait) {
  return {.mode = PlayMode::kBatches,
          .start = At(Millis(1)),
          .end = At(Millis(9)),
          .arrivals = std::move(arrivals),
          .batches = {{.most = 1, .first_step = 0, .steps = 1},
                      {.most = 3, .first_step = 1, .steps = 1}},
          .batch_wait = wait};
}

std::vector<Nanos> LatenciesIn(const PlayResult& result) {
  std::vector<Nanos> latencies;
  for (const Request& request : result.requests) latencies.push_back(request.latency);
  return latencies;
}

TEST(PlayerTest, ABatchWaitsUntilItIsFullOrItsOldestHasWaited) {
  FakePort port;
  PlayResult result;
  // Three requests that fill a batch; two that do not, until the oldest has waited; and a single one.
  const PlayOptions options = InBatches(
      {Nanos(0), Micros(100), Micros(200), Millis(2), Micros(2100), Millis(5)}, Micros(500));
  ASSERT_TRUE(Play(Batched(), options, port, &result).ok());
  // 1 us for the launch, 250 or 100 us for the kernel.
  EXPECT_EQ(LatenciesIn(result), (std::vector<Nanos>{Micros(451), Micros(351), Micros(251),
                                                     Micros(751), Micros(651), Micros(601)}));
  EXPECT_EQ(result.passes, 3u);
  EXPECT_EQ(result.launches, 3u);
}

TEST(PlayerTest, WhatCameWhileABatchWasServedIsTheNextOne) {
  FakePort port;
  PlayResult result;
  const PlayOptions options =
      InBatches({Nanos(0), Micros(10), Micros(20), Micros(30), Micros(40)}, Nanos(0));
  ASSERT_TRUE(Play(Batched(), options, port, &result).ok());
  // The first is served at once; then three, although the fourth waits too.
  EXPECT_EQ(LatenciesIn(result),
            (std::vector<Nanos>{Micros(101), Micros(342), Micros(332), Micros(322), Micros(413)}));
  EXPECT_EQ(result.passes, 3u);
}

TEST(PlayerTest, ABatchThatIsNotFullAtTheEndIsNotBegun) {
  FakePort port;
  PlayResult result;
  ASSERT_TRUE(Play(Batched(), InBatches({Micros(7900)}, Millis(1)), port, &result).ok());
  EXPECT_TRUE(result.requests.empty());
}

TEST(PlayerTest, BatchesAreOfTheProgram) {
  FakePort port;
  PlayResult result;
  PlayOptions options = InBatches({Nanos(0)}, Nanos(0));
  options.batches[1].steps = 2;
  EXPECT_EQ(Play(Batched(), options, port, &result).code(), absl::StatusCode::kInvalidArgument);
  options.batches.clear();
  EXPECT_EQ(Play(Batched(), options, port, &result).code(), absl::StatusCode::kInvalidArgument);
}

TEST(PlayerTest, AbsenceIsIdle) {
  FakePort port;
  PlayResult result;
  const PlayOptions options = {.mode = PlayMode::kSyncPerIteration,
                               .start = At(Millis(2)),
                               .end = At(Millis(12)),
                               .absences = {{Millis(3), Millis(5)}}};
  ASSERT_TRUE(Play(Sample(), options, port, &result).ok());
  for (const Time start : port.starts_) {
    // The pass during which it begins is completed: 151 us.
    EXPECT_FALSE(start > At(Millis(5) + Micros(151)) && start < At(Millis(7)));
  }
  EXPECT_NEAR(static_cast<double>(result.passes), 8000.0 / 151, 2);
  // The absence is reported as it was: from the end of that pass.
  ASSERT_EQ(result.absences.size(), 1u);
  EXPECT_GE(result.absences[0].from, Millis(3));
  EXPECT_LE(result.absences[0].from, Millis(3) + Micros(151));
  EXPECT_EQ(result.absences[0].to, Millis(5));
}

TEST(PlayerTest, AbsenceShorterThanTheWorkBeforeItIsNone) {
  FakePort port;
  PlayResult result;
  const PlayOptions options = {.mode = PlayMode::kSyncPerIteration,
                               .end = At(Millis(2)),
                               .absences = {{Micros(10), Micros(20)}, {Millis(1), Millis(3)}}};
  ASSERT_TRUE(Play(Sample(), options, port, &result).ok());
  ASSERT_EQ(result.absences.size(), 1u);
  EXPECT_EQ(result.absences[0].to, Millis(2)) << "the end of all";
}

TEST(PlayerTest, AbsenceBeyondTheEndEndsThere) {
  FakePort port;
  PlayResult result;
  ASSERT_TRUE(
      Play(Sample(), {.end = At(Millis(2)), .absences = {{Millis(1), Seconds(9)}}}, port, &result)
          .ok());
  EXPECT_EQ(port.Now(), At(Millis(2)));
}

TEST(PlayerTest, ErrorsEndThePlayAndKeepTheCount) {
  FakePort port;
  port.fail_after_ = 6;
  PlayResult result;
  const absl::Status status = Play(Sample(), {.end = At(Seconds(1))}, port, &result);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(result.launches, 5u);
  EXPECT_EQ(result.passes, 2u);
}

TEST(PlayerTest, AfterPassIsCalledOncePerPassAndItsErrorEndsThePlay) {
  for (const PlayMode mode :
       {PlayMode::kBacklog, PlayMode::kSyncPerIteration, PlayMode::kOpenLoop}) {
    FakePort port;
    PlayResult result;
    PlayOptions options = {.mode = mode, .end = At(Seconds(1)), .arrivals = std::vector<Nanos>(9)};
    int calls = 0;
    options.after_pass = [&] {
      return ++calls == 3 ? absl::AbortedError("enough") : absl::OkStatus();
    };
    EXPECT_EQ(Play(Sample(), options, port, &result).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(result.passes, 3u);
  }
}

TEST(PlayerTest, StopEndsEarly) {
  FakePort port;
  PlayResult result;
  const std::atomic<bool> stop{true};
  ASSERT_TRUE(Play(Sample(), {.end = At(Seconds(1)), .stop = &stop}, port, &result).ok());
  EXPECT_EQ(result.launches, 0u);
}

TEST(PlayerTest, NoKernelsIsAnError) {
  FakePort port;
  PlayResult result;
  EXPECT_EQ(Play(Program{}, {.end = At(Seconds(1))}, port, &result).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LatencyQuantileTest, IsTheNearestRank) {
  std::vector<Request> requests;
  for (int i = 100; i >= 1; --i) requests.push_back({Nanos(0), Micros(i)});
  EXPECT_EQ(LatencyQuantile(requests, 0.5), Micros(50));
  EXPECT_EQ(LatencyQuantile(requests, 0.99), Micros(99));
  EXPECT_EQ(LatencyQuantile(requests, 1), Micros(100));
  EXPECT_EQ(LatencyQuantile(requests, 0), Micros(1));
  EXPECT_EQ(LatencyQuantile({}, 0.5), Nanos(0));
}

}  // namespace
}  // namespace gpushare::player
