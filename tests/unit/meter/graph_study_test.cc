// SPDX-License-Identifier: Apache-2.0
#include "meter/graph_study.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace gpushare::meter {
namespace {

constexpr int kStudiedSms = 100;
constexpr double kNeverUs = std::numeric_limits<double>::infinity();

// The real device: streams of kernels. A kernel becomes ready when the previous one on its stream has ended. The
// kernel that became ready first gets the free SMs.
struct Device {
  struct Kernel {
    double us;
    int sms;  // over all its waves
  };
  struct Stream {
    std::vector<Kernel> kernels;
    std::vector<double> ended = {};  // the end of each kernel
    bool begun = false;
    int waiting = 0, running = 0;
    double ready = 0;
  };
  struct Group {
    double end;
    size_t stream;
    int sms;
  };

  static void Run(std::vector<Stream>& streams) {
    double now = 0;
    int free = kStudiedSms;
    std::vector<Group> groups;
    for (;;) {
      for (;;) {
        size_t oldest = streams.size();
        for (size_t i = 0; i < streams.size(); ++i) {
          Stream& s = streams[i];
          if (s.ended.size() == s.kernels.size() || (s.begun && s.waiting == 0)) continue;
          if (oldest == streams.size() || s.ready < streams[oldest].ready) oldest = i;
        }
        if (oldest == streams.size() || free == 0) break;
        Stream& s = streams[oldest];
        const Kernel& kernel = s.kernels[s.ended.size()];
        if (!s.begun) s.waiting = kernel.sms;
        s.begun = true;
        const int n = std::min(free, s.waiting);
        s.waiting -= n;
        s.running += n;
        free -= n;
        const int waves = (kernel.sms + kStudiedSms - 1) / kStudiedSms;
        groups.push_back({now + kernel.us / waves, oldest, n});
      }
      const auto next =
          std::min_element(groups.begin(), groups.end(),
                           [](const Group& a, const Group& b) { return a.end < b.end; });
      if (next == groups.end()) return;
      now = next->end;
      Stream& s = streams[next->stream];
      free += next->sms;
      s.running -= next->sms;
      groups.erase(next);
      if (s.running > 0 || s.waiting > 0) continue;
      s.ended.push_back(now);
      s.begun = false;
      s.ready = now;
    }
  }
};

struct Beside {
  std::vector<Device::Kernel> graph = {}, others = {};
  int launches = 40;
  bool opaque = false;       // the graph is opaque
  bool guess = false;        // the costs of the others are guesses
  bool lease = false;        // there is a lease too
  double others_learnt = 1;  // the factor by which the learnt costs of the others are too long
};

// Studies some launches of one tenant's graph beside another tenant's kernels.
std::optional<GraphShape> Study(const Beside& beside, const ShapeSearch::Kernels& kernels,
                                const GraphShape& taken, const GraphShape& now = {},
                                const GraphShape& measured = {}) {
  double graph_us = 0, others_us = 0;
  for (const Device::Kernel& kernel : beside.graph) graph_us += kernel.us;
  for (const Device::Kernel& kernel : beside.others) others_us += kernel.us;
  const int rounds = static_cast<int>(beside.launches * graph_us / others_us);
  std::vector<Device::Stream> streams(2);
  for (int i = 0; i < beside.launches; ++i) {
    for (const Device::Kernel& kernel : beside.graph) streams[0].kernels.push_back(kernel);
  }
  for (int i = 0; i < rounds; ++i) {
    for (const Device::Kernel& kernel : beside.others) streams[1].kernels.push_back(kernel);
  }
  Device::Run(streams);

  Replay replay(kStudiedSms);
  const Replay::StreamId graph = replay.AddStream(0, 0), others = replay.AddStream(1, 0);
  GraphStudy study({.kernels = kernels,
                    .measured = measured,
                    .taken = taken,
                    .now = now,
                    .sm_count = kStudiedSms});
  study.Begin(replay);
  if (beside.lease) {
    const Replay::StreamId lease = replay.AddStream(2, 0);
    replay.Append(lease, {.cost_ns = 1e6f, .opaque = true}, Nanos(0));
    replay.Boundary(lease);
  }
  const uint32_t parts = beside.opaque ? 1 : static_cast<uint32_t>(taken.size());
  for (int i = 0; i < beside.launches; ++i) {
    for (uint32_t part = 0; part < parts; ++part) {
      const double us = graph_us * (beside.opaque ? 1 : static_cast<double>(taken[part].length));
      replay.Append(graph,
                    {.entry = 1,
                     .cost_ns = static_cast<float>(us * 1000),
                     .footprint = taken[part].footprint,
                     .opaque = beside.opaque,
                     .studied = true,
                     .parts = parts},
                    Nanos(0));
    }
    replay.Boundary(graph);
  }
  for (const Device::Kernel& kernel : streams[1].kernels) {
    replay.Append(others,
                  {.entry = 2,
                   .cost_ns = static_cast<float>(kernel.us * beside.others_learnt * 1000),
                   .footprint = static_cast<float>(kernel.sms) / kStudiedSms,
                   .guess = beside.guess},
                  Nanos(0));
    replay.Boundary(others);
  }
  size_t of_graph = beside.graph.size() - 1, of_others = 0;
  for (;;) {
    const auto at = [](const Device::Stream& s, size_t i) {
      return i < s.ended.size() ? s.ended[i] : kNeverUs;
    };
    const double a = at(streams[0], of_graph), b = at(streams[1], of_others);
    if (a == kNeverUs && b == kNeverUs) break;
    replay.Complete(a <= b ? graph : others, Nanos(static_cast<int64_t>(std::min(a, b) * 1000)));
    if (a <= b) {
      of_graph += beside.graph.size();
    } else {
      ++of_others;
    }
  }
  study.End(replay);
  int steps = 0;
  while (study.Step(200)) ++steps;
  EXPECT_LT(steps, 20'000);
  return study.found();
}

GraphShape Equal(size_t parts, float footprint) {
  return GraphShape(parts, {1.0f / static_cast<float>(parts), footprint});
}

// A graph whose kernels all have the same width: its kernels are known, but not how long each of them takes.
const Beside kLengths = {.graph = {{12, 40}, {23, 40}, {200, 40}, {31, 40}, {34, 40}},
                         .others = {{90, 70}, {160, 70}, {70, 70}}};
const ShapeSearch::Kernels kFive = {{0, 0.4f}, {1, 0.4f}, {2, 0.4f}, {3, 0.4f}, {4, 0.4f}};

TEST(GraphStudy, FindsWhichKernelIsLong) {
  const std::optional<GraphShape> found = Study(kLengths, kFive, Equal(5, 0.4f));
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->size(), 5u);
  EXPECT_NEAR((*found)[2].length, 200.0 / 300, 0.1);
  EXPECT_LT((*found)[0].length + (*found)[1].length, 0.25);
}

// Costs that were learnt beside the graph, while its shape was wrong, are too long.
TEST(GraphStudy, FindsItThoughOthersSeemToTakeLonger) {
  Beside beside = kLengths;
  beside.others_learnt = 1.15;
  const std::optional<GraphShape> found = Study(beside, kFive, Equal(5, 0.4f));
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR((*found)[2].length, 200.0 / 300, 0.15);
}

// A graph whose kernels have different widths, which is charged the time that it takes alone.
TEST(GraphStudy, FindsTheLengthsOfKernelsOfUnlikeWidth) {
  const Beside beside = {.graph = {{40, 100}, {120, 20}, {40, 100}},
                         .others = {{90, 70}, {160, 70}, {70, 70}},
                         .opaque = true};
  const std::optional<GraphShape> found = Study(beside, {{0, 1}, {1, 0.2f}, {0, 1}}, {{1, 1}});
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR((*found)[1].length, 0.6, 0.1);
}

// 600 kernels of which the lengths are known from launches by themselves: too many to be searched.
struct ManyKernels {
  std::vector<Device::Kernel> graph;
  GraphShape measured;
};
ManyKernels Many(double first_us, double second_us) {
  ManyKernels many;
  for (int i = 0; i < 600; ++i) {
    many.graph.push_back(i % 2 == 0 ? Device::Kernel{10, 100} : Device::Kernel{30, 20});
    many.measured.push_back(i % 2 == 0 ? GraphPart{static_cast<float>(first_us), 1}
                                       : GraphPart{static_cast<float>(second_us), 0.2f});
  }
  float sum = 0;
  for (const GraphPart& part : many.measured) sum += part.length;
  for (GraphPart& part : many.measured) part.length /= sum;
  return many;
}

TEST(GraphStudy, BelievesTheMeasuredLengthsOfManyKernels) {
  const ManyKernels many = Many(10, 30);
  const Beside beside = {.graph = many.graph,
                         .others = {{90, 70}, {160, 70}, {70, 70}},
                         .launches = 6,
                         .opaque = true};
  EXPECT_EQ(Study(beside, {}, {{1, 1}}, {}, many.measured), many.measured);
}

// In the graph they take other times than by themselves.
TEST(GraphStudy, DoesNotBelieveMeasuredLengthsThatPredictNoBetter) {
  const ManyKernels many = Many(1, 400);
  const Beside beside = {.graph = many.graph,
                         .others = {{90, 70}, {160, 70}, {70, 70}},
                         .launches = 6,
                         .opaque = true};
  EXPECT_FALSE(Study(beside, {}, {{1, 1}}, {}, many.measured).has_value());
}

TEST(GraphStudy, SearchesWhereTheMeasuredLengthsAreWrong) {
  const GraphShape measured = {
      {0.6f, 0.4f}, {0.1f, 0.4f}, {0.1f, 0.4f}, {0.1f, 0.4f}, {0.1f, 0.4f}};
  const std::optional<GraphShape> found = Study(kLengths, kFive, Equal(5, 0.4f), {}, measured);
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR((*found)[2].length, 200.0 / 300, 0.1);
}

// 48 kernels of unknown lengths beside kernels that fill the device: their order hangs on microseconds, so nothing is concluded.
TEST(GraphStudy, SearchesManyLengthsOnlyBesideKernelsThatLeaveRoom) {
  Beside beside = {.others = {{90, 70}, {160, 70}, {70, 70}}, .launches = 26, .opaque = true};
  ShapeSearch::Kernels kernels;
  for (int i = 0; i < 48; ++i) {
    const bool wide = i % 3 == 0;
    beside.graph.push_back(wide ? Device::Kernel{20, 100} : Device::Kernel{30, 20});
    kernels.push_back({wide ? 0u : 1u, wide ? 1 : 0.2f});
  }
  EXPECT_TRUE(Study(beside, kernels, {{1, 1}}).has_value());
  for (Device::Kernel& kernel : beside.others) kernel.sms = 100;
  EXPECT_FALSE(Study(beside, kernels, {{1, 1}}).has_value());
}

// A graph of which nothing is known.
TEST(GraphStudy, FindsHowWideItIs) {
  const Beside beside = {.graph = {{100, 30}, {150, 30}},
                         .others = {{90, 170}, {160, 170}, {70, 170}},
                         .opaque = true};
  const std::optional<GraphShape> found = Study(beside, {}, {{1, 1}});
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR((*found)[0].footprint, 0.3, 0.1);
}

TEST(GraphStudy, FindsNothingWhereItIsWhatItIsTakenFor) {
  Beside beside = kLengths;
  beside.graph = {{60, 40}, {60, 40}, {60, 40}};
  EXPECT_FALSE(Study(beside, {{0, 0.4f}, {1, 0.4f}, {2, 0.4f}}, Equal(3, 0.4f)).has_value());
}

// What a lease did is unknown.
TEST(GraphStudy, FindsNothingBesideALease) {
  Beside beside = kLengths;
  beside.lease = true;
  EXPECT_FALSE(Study(beside, kFive, Equal(5, 0.4f)).has_value());
}

// Timestamps of kernels that vary or have a cap do not count: their lateness must not be charged to the graph.
TEST(GraphStudy, LearnsNothingFromWhatIsAGuess) {
  Beside beside = kLengths;
  beside.launches = 30;  // too few for the graph's own timestamps
  EXPECT_TRUE(Study(beside, kFive, Equal(5, 0.4f)).has_value());
  beside.guess = true;
  EXPECT_FALSE(Study(beside, kFive, Equal(5, 0.4f)).has_value());
}

// If nothing can be found out, the earlier finding is kept. If the graph turns out to have its default shape, the
// finding is dropped.
TEST(GraphStudy, WhatWasFoundBeforeStandsUntilThereIsMoreToGoBy) {
  const GraphShape before = {{0.3f, 0.4f}, {0.5f, 0.4f}, {0.2f, 0.4f}};
  const ShapeSearch::Kernels kernels = {{0, 0.4f}, {1, 0.4f}, {2, 0.4f}};
  Beside beside = kLengths;
  beside.graph = {{60, 40}, {60, 40}, {60, 40}};
  EXPECT_FALSE(Study(beside, kernels, Equal(3, 0.4f), before).has_value());
  beside.lease = true;
  EXPECT_EQ(Study(beside, kernels, Equal(3, 0.4f), before), before);
}

TEST(GraphStudy, NothingWasRecorded) {
  Replay replay(kStudiedSms);
  GraphStudy study({.kernels = kFive, .taken = Equal(5, 0.4f), .sm_count = kStudiedSms});
  study.Begin(replay);
  study.End(replay);
  EXPECT_FALSE(study.Step(10));
  EXPECT_FALSE(study.found().has_value());
}

}  // namespace
}  // namespace gpushare::meter
