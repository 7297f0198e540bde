// SPDX-License-Identifier: Apache-2.0
// Graphs some of whose kernels run at the same time.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "meter/graph_shape.h"
#include "meter/graph_study.h"
#include "meter/outlook.h"
#include "meter/replay.h"

namespace gpushare::meter::branches_test {  // names of its own, since tests are compiled together
namespace {

using driver::GraphEdge;

constexpr int kSms = 100;

std::vector<uint32_t> BranchesOf(uint32_t kernels, const std::vector<GraphEdge>& edges) {
  const std::shared_ptr<const Branches> branches = Branches::Of(kernels, edges);
  std::vector<uint32_t> of;
  for (uint32_t i = 0; i < kernels && branches != nullptr; ++i) of.push_back(branches->BranchOf(i));
  return of;
}

TEST(BranchesOf, KernelsThatFollowOneAnotherAreOne) {
  EXPECT_EQ(BranchesOf(3, {{0, 1}, {1, 2}}), (std::vector<uint32_t>{0, 0, 0}));
  EXPECT_EQ(BranchesOf(3, {}), (std::vector<uint32_t>{0, 1, 2}));
}

TEST(BranchesOf, AForkGoesOnWithThoseThatHaveEnded) {
  // Two layers of a kernel, two side by side, and one.
  const std::vector<GraphEdge> edges = {{0, 1}, {0, 2}, {1, 3}, {2, 3},
                                        {3, 4}, {3, 5}, {4, 6}, {5, 6}};
  EXPECT_EQ(BranchesOf(7, edges), (std::vector<uint32_t>{0, 0, 1, 0, 0, 1, 0}));
}

TEST(BranchesOf, NoneWhereTooManyMayRunAtTheSameTime) {
  EXPECT_EQ(BranchesOf(Branches::kMost, {}).size(), Branches::kMost);
  EXPECT_EQ(Branches::Of(Branches::kMost + 1, {}), nullptr);
  // Nine branches that go on and on.
  constexpr uint32_t kNine = 9;
  const auto branches_of = [](uint32_t kernels) {
    std::vector<GraphEdge> edges;
    for (uint32_t i = kNine; i < kernels; ++i) edges.push_back({i - kNine, i});
    return Branches::Of(kernels, edges);
  };
  EXPECT_NE(branches_of(Branches::kMostTimesKernels / kNine), nullptr);
  EXPECT_EQ(branches_of(Branches::kMostTimesKernels / kNine + 1), nullptr);
}

// Which kernels have SMs is decided as in Replay.
TEST(LengthTogether, CountsWhatRunsSideBySideOnceAndWaitsForSms) {
  const std::vector<GraphEdge> fork = {{0, 1}, {0, 2}};
  const auto branches = Branches::Of(3, fork);
  const auto length = [&](float footprint) {
    return LengthTogether({{10, 1}, {20, footprint}, {30, footprint}}, *branches, kSms);
  };
  EXPECT_NEAR(length(0.5f), 40, 1e-3);
  EXPECT_NEAR(length(1), 60, 1e-3);
  EXPECT_NEAR(length(0.6f), 60, 1e-3);  // a third of the second one waits for the first
  EXPECT_NEAR(length(2.0f), 60, 1e-3);  // waves
}

std::shared_ptr<const BranchedShape> ShapeOf(const GraphShape& kernels,
                                             const std::vector<GraphEdge>& edges) {
  return std::make_shared<BranchedShape>(
      BranchedShape{kernels, Branches::Of(static_cast<uint32_t>(kernels.size()), edges)});
}

Replay::Command Whole(double us) { return {.entry = 7, .cost_ns = static_cast<float>(us * 1000)}; }
Replay::Command Kernel(double us, double footprint) {
  return {.cost_ns = static_cast<float>(us * 1000), .footprint = static_cast<float>(footprint)};
}

// Two kernels side by side, of 100 and of 60 us.
const GraphShape kTwo = {{1, 0.25f}, {0.6f, 0.5f}};

TEST(BranchedGraph, AloneTakesTheTimeOfItsLongestBranch) {
  Replay replay(kSms);
  const auto s = replay.AddStream(0, 0);
  replay.AppendGraph(s, Whole(100), ShapeOf(kTwo, {}), Nanos(0));
  replay.Append(s, Kernel(20, 1), Nanos(0));
  replay.Boundary(s);
  const Replay::Batch batch = replay.Complete(s, Micros(120));
  EXPECT_NEAR(batch.used_ns, 120e3, 1);
  EXPECT_NEAR(batch.predicted_ns, 120e3, 1);
  EXPECT_NEAR(batch.ratio, 1, 1e-3);
  EXPECT_NEAR(batch.late_ns, 0, 1);
  EXPECT_TRUE(batch.alone);
  ASSERT_EQ(batch.commands.size(), 3u);  // parts of one command are adjacent
  EXPECT_EQ(batch.commands[0].entry, 7u);
  EXPECT_EQ(batch.commands[1].parts, 2u);
  EXPECT_NEAR(batch.commands[0].alone_ns() + batch.commands[1].alone_ns(), 100e3, 1);
}

TEST(BranchedGraph, SharesByTheSmsThatItsKernelsHold) {
  Replay replay(kSms);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.AppendGraph(a, Whole(100), ShapeOf(kTwo, {}), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Kernel(100, 0.25), Nanos(0));
  replay.Boundary(b);
  EXPECT_NEAR(replay.Complete(a, Micros(100)).used_ns, 60e3 * 0.75 + 40e3 * 0.5, 1);
  EXPECT_NEAR(replay.Complete(b, Micros(100)).used_ns, 60e3 * 0.25 + 40e3 * 0.5, 1);
}

TEST(BranchedGraph, TheLastKernelRunsOnWhereItsBatchIsLate) {
  Replay replay(kSms);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.AppendGraph(a, Whole(100), ShapeOf(kTwo, {}), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Kernel(200, 0.25), Nanos(0));
  replay.Boundary(b);
  const Replay::Batch late = replay.Complete(a, Micros(120));
  EXPECT_NEAR(late.late_ns, 20e3, 1);
  EXPECT_NEAR(late.used_ns, 60e3 * 0.75 + 60e3 * 0.5, 1);
  EXPECT_GT(late.ratio, 1);
  EXPECT_NEAR(replay.Complete(b, Micros(200)).used_ns, 60e3 * 0.25 + 60e3 * 0.5 + 80e3, 1);
}

TEST(BranchedGraph, WhatEndsEarlyOrIsRefusedLeavesNothingBehind) {
  Replay replay(kSms);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.AppendGraph(a, Whole(100), ShapeOf(kTwo, {}), Nanos(0));
  replay.Boundary(a);
  replay.AppendGraph(a, Whole(100), ShapeOf(kTwo, {}), Nanos(0));
  replay.Refuse(a, 7);
  replay.Boundary(a);
  EXPECT_NEAR(replay.Complete(a, Micros(30)).late_ns, -70e3, 1);
  EXPECT_EQ(replay.Complete(a, Micros(30)).predicted_ns, 0);
  replay.AppendGraph(a, Whole(100), ShapeOf(kTwo, {}), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Kernel(50, 1), Nanos(0));
  replay.Boundary(b);
  replay.UsedSoFar(b, Micros(40));
  replay.RemoveStream(a);
  EXPECT_NEAR(replay.Complete(b, Micros(90)).used_ns, 10e3 * 0.25 + 50e3, 1);
  const auto c = replay.AddStream(2, 0);
  replay.AppendGraph(c, Whole(100), ShapeOf(kTwo, {}), Micros(90));
  replay.Abandon(c);
  replay.Append(b, Kernel(50, 0.25), Micros(90));
  replay.Boundary(b);
  EXPECT_NEAR(replay.Complete(b, Micros(140)).used_ns, 50e3 * 0.25, 1);
}

TEST(BranchedGraph, HoldsItsSmsInTheOutlook) {
  Replay replay(kSms);
  const auto own = replay.AddStream(0, 0), kept = replay.AddStream(1, -1);
  replay.AppendGraph(own, Whole(100), ShapeOf({{1, 0.5f}, {0.6f, 0.5f}}, {}), Nanos(0));
  replay.UsedSoFar(own, Micros(40));
  Replay::Command request = Kernel(50, 1);
  request.sure = true;
  replay.Append(kept, request, Micros(40));
  Outlook outlook;
  ASSERT_TRUE(replay.Look(
      own, [](uint32_t tenant) { return tenant == 1; }, 8, 0, outlook));
  // Half of the request begins at 60 us and the other half at 100, when the graph ends.
  const Outlook::Delay delay = outlook.Of({.length = 10e3, .groups = 10});
  EXPECT_TRUE(delay.known);
  EXPECT_NEAR(delay.starts, 110e3, 1);
}

TEST(BranchedGraph, ThatWasLetInBesideOthersIsBesideThemUntilItHasEnded) {
  Replay replay(kSms);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  replay.Append(a, Kernel(300, 0.5), Nanos(0));
  replay.Boundary(a);
  Replay::Command let_in = Whole(50);
  let_in.beside = true;
  replay.AppendGraph(b, let_in, ShapeOf(kTwo, {}), Nanos(0));
  replay.Boundary(b, /*holds=*/false);
  replay.UsedSoFar(a, Micros(100));  // it has ended in the model
  replay.Holds(b);
  replay.Complete(b, Micros(200));
  EXPECT_NEAR(replay.Complete(a, Micros(300)).beside_ns, 60e3 + 100e3, 1);
}

// Another stream's short kernel is late, and a batch ends of which the model has seen three tenths. That is enough to believe the
// model, however the batch is divided.
TEST(BranchedGraph, IsTakenForUnseenAsOtherGraphsAre) {
  const auto used = [](bool branches) {
    Replay replay(kSms);
    const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
    if (branches) {
      const GraphShape kernels = {{0.3f, 1}, {0.7f, 0.5f}, {0.7f, 0.5f}};
      replay.AppendGraph(a, Whole(100), ShapeOf(kernels, {{0, 1}, {0, 2}}), Nanos(0));
    } else {
      for (const double us : {30, 70}) {
        Replay::Command part = Kernel(us, 1);
        part.parts = 2;
        replay.Append(a, part, Nanos(0));
      }
    }
    replay.Boundary(a);
    replay.Append(b, Kernel(10, 1), Micros(5));
    replay.Boundary(b);
    return replay.Complete(a, Micros(110)).used_ns;
  };
  EXPECT_NEAR(used(true), used(false), 1);
  EXPECT_NEAR(used(true), 30e3, 1);
}

// The graph runs alone for half of its time, with ten kernels side by side, and beside another tenant's kernel with one.
TEST(BranchedGraph, WasNotAloneIfOthersRanBesideItForHalfOfItsTime) {
  Replay replay(kSms);
  const auto a = replay.AddStream(0, 0), b = replay.AddStream(1, 0);
  GraphShape kernels(10, {0.5f, 0.05f});
  std::vector<GraphEdge> edges;
  for (uint32_t i = 0; i < kernels.size(); ++i) edges.push_back({i, 10});
  kernels.push_back({0.5f, 0.05f});
  replay.AppendGraph(a, Whole(200), ShapeOf(kernels, edges), Nanos(0));
  replay.Boundary(a);
  replay.Append(b, Kernel(100, 0.5), Micros(100));
  replay.Boundary(b);
  EXPECT_FALSE(replay.Complete(a, Micros(200)).alone);
}

// By how much the batch of the graph, alone, is later than in the model.
double LateOf(const std::shared_ptr<const BranchedShape>& shape, double us) {
  Replay replay(kSms);
  const auto a = replay.AddStream(0, 0);
  replay.AppendGraph(a, Whole(us), shape, Nanos(0));
  replay.Boundary(a);
  const Replay::Batch batch = replay.Complete(a, Nanos(static_cast<int64_t>(us * 1000)));
  EXPECT_EQ(batch.commands.size(), shape->kernels.size());
  return batch.late_ns;
}

TEST(BranchedGraph, KernelsMayWaitForThousands) {
  constexpr uint32_t kChain = 1000, kWaiting = 8;
  std::vector<GraphEdge> edges;
  for (uint32_t i = 1; i < kChain; ++i) edges.push_back({i - 1, i});
  for (uint32_t i = kChain; i < kChain + kWaiting; ++i) {
    for (uint32_t before = 0; before < kChain; ++before) edges.push_back({before, i});
  }
  const GraphShape kernels(kChain + kWaiting, {1.0f / (kChain + 1), 0.1f});
  EXPECT_NEAR(LateOf(ShapeOf(kernels, edges), 1e4), 0, 50);
}

TEST(BranchedGraph, WavesEndTogether) {
  constexpr uint32_t kKernels = 128;
  std::vector<GraphEdge> two;
  for (uint32_t i = 2; i < kKernels; ++i) two.push_back({i - 2, i});
  const auto branches = Branches::Of(kKernels, two);
  ASSERT_NE(branches, nullptr);
  GraphShape kernels(kKernels, {1.0f, 3.37f});
  const auto whole = static_cast<float>(LengthTogether(kernels, *branches, kSms));
  for (GraphPart& kernel : kernels) kernel.length /= whole;
  EXPECT_NEAR(LateOf(std::make_shared<BranchedShape>(BranchedShape{kernels, branches}), 1e4), 0,
              50);
}

// -- The device --

// Streams of jobs. A job is one kernel, or a graph with branches. Free SMs go to the kernel that could begin first.
struct Job {
  struct Kernel {
    double us;
    int sms;
    std::vector<uint32_t> before = {};
  };
  std::vector<Kernel> kernels;
  double ended = 0;
};

class Device {
 public:
  explicit Device(std::vector<std::vector<Job>>& streams)
      : streams_(streams), at_(streams.size()), used(streams.size()) {
    for (size_t s = 0; s < streams_.size(); ++s) Begin(s);
  }

  // Calls `ended(stream, job)` for each job in the order of their ends.
  template <typename F>
  void Run(const F& ended) {
    for (Place(); !groups_.empty(); Place()) {
      const auto first =
          std::min_element(groups_.begin(), groups_.end(),
                           [](const Group& a, const Group& b) { return a.end < b.end; });
      const Group group = *first;
      groups_.erase(first);
      int held = kSms - free_;
      for (const Group& g : groups_) used[g.stream] += (group.end - now_) * g.sms / held;
      used[group.stream] += (group.end - now_) * group.sms / held;
      now_ = group.end;
      free_ += group.sms;
      if ((left_[group.stream][group.kernel] -= group.sms) > 0) continue;
      Job& job = streams_[group.stream][at_[group.stream]];
      job.ended = now_;
      done_[group.stream][group.kernel] = true;
      const auto& done = done_[group.stream];
      if (std::all_of(done.begin(), done.end(), [](bool d) { return d; })) {
        ended(group.stream, job);
        ++at_[group.stream];
        Begin(group.stream);
      } else {
        AddReady(group.stream);
      }
    }
  }

 private:
  struct Group {
    double end;
    size_t stream;
    uint32_t kernel;
    int sms;
  };
  struct Ready {
    size_t stream;
    uint32_t kernel;
    int waiting;
  };

  void Begin(size_t stream) {
    left_.resize(streams_.size());
    done_.resize(streams_.size());
    if (at_[stream] == streams_[stream].size()) return;
    const Job& job = streams_[stream][at_[stream]];
    left_[stream].assign(job.kernels.size(), 0);
    done_[stream].assign(job.kernels.size(), false);
    AddReady(stream);
  }
  void AddReady(size_t stream) {
    const Job& job = streams_[stream][at_[stream]];
    for (uint32_t i = 0; i < job.kernels.size(); ++i) {
      if (done_[stream][i] || left_[stream][i] > 0) continue;
      const auto& before = job.kernels[i].before;
      if (!std::all_of(before.begin(), before.end(), [&](uint32_t k) { return done_[stream][k]; }))
        continue;
      left_[stream][i] = job.kernels[i].sms;
      ready_.push_back({stream, i, job.kernels[i].sms});
    }
  }
  void Place() {
    while (free_ > 0 && !ready_.empty()) {
      Ready& ready = ready_.front();
      const Job::Kernel& kernel = streams_[ready.stream][at_[ready.stream]].kernels[ready.kernel];
      const int n = std::min(free_, ready.waiting);
      const int waves = (kernel.sms + kSms - 1) / kSms;
      groups_.push_back({now_ + kernel.us / waves, ready.stream, ready.kernel, n});
      free_ -= n;
      ready.waiting -= n;
      if (ready.waiting == 0) ready_.erase(ready_.begin());
    }
  }

  std::vector<std::vector<Job>>& streams_;
  std::vector<size_t> at_;
  std::vector<std::vector<int>> left_;  // SMs of each kernel that has begun and not ended
  std::vector<std::vector<bool>> done_;
  std::vector<Ready> ready_;
  std::vector<Group> groups_;
  double now_ = 0;
  int free_ = kSms;

 public:
  std::vector<double> used;  // us of each stream
};

class Streams {
 public:
  explicit Streams(uint32_t seed) : random_(seed) {
    streams.resize(static_cast<size_t>(Pick(2, 3)));
    for (std::vector<Job>& jobs : streams) {
      // Graphs of the same structure, and single kernels between them.
      const bool graphs = &jobs == &streams[0] || Pick(0, 2) == 0;
      const Job graph = RandomGraph();
      for (int i = 0; i < 12; ++i) {
        jobs.push_back(graphs && Pick(0, 3) > 0 ? graph : Job{{RandomKernel()}});
      }
    }
  }

  std::vector<std::vector<Job>> streams;

 private:
  int Pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random_); }
  Job::Kernel RandomKernel() {
    return {std::uniform_real_distribution<double>(3, 200)(random_),
            Pick(0, 3) == 0 ? Pick(100, 250) : Pick(1, 99)};
  }
  Job RandomGraph() {
    Job job;
    const int kernels = Pick(2, 9);
    for (int i = 0; i < kernels; ++i) {
      job.kernels.push_back(RandomKernel());
      for (int before = 0; before < i; ++before) {
        if (Pick(0, 3) == 0) job.kernels.back().before.push_back(static_cast<uint32_t>(before));
      }
    }
    return job;
  }

  std::mt19937 random_;
};

std::vector<GraphEdge> EdgesOf(const Job& job) {
  std::vector<GraphEdge> edges;
  for (uint32_t i = 0; i < job.kernels.size(); ++i) {
    for (const uint32_t before : job.kernels[i].before) edges.push_back({before, i});
  }
  return edges;
}

// Whatever the graphs: told what is launched and when batches end, the replay says who had the device. A copy that repeats the
// calls says the same.
TEST(BranchedGraph, PropertyTheReplayFollowsTheDevice) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::vector<std::vector<Job>> streams = Streams(seed).streams;
    Replay replay(kSms);
    for (size_t s = 0; s < streams.size(); ++s) replay.AddStream(static_cast<uint32_t>(s), 0);
    const Replay before = replay.Copy();
    std::vector<Replay::Call> calls;
    calls.reserve(1000);
    replay.Record(&calls);
    for (Replay::StreamId s = 0; s < streams.size(); ++s) {
      for (const Job& job : streams[s]) {
        GraphShape kernels;
        for (const Job::Kernel& kernel : job.kernels) {
          kernels.push_back({static_cast<float>(kernel.us), static_cast<float>(kernel.sms) / kSms});
        }
        const auto shape = ShapeOf(kernels, EdgesOf(job));
        ASSERT_NE(shape->branches, nullptr);
        const double whole = LengthTogether(kernels, *shape->branches, kSms);
        for (GraphPart& kernel : kernels) kernel.length /= static_cast<float>(whole);
        if (job.kernels.size() == 1) {
          replay.Append(s, Kernel(whole, static_cast<double>(kernels[0].footprint)), Nanos(0));
        } else {
          replay.AppendGraph(s, Whole(whole), ShapeOf(kernels, EdgesOf(job)), Nanos(0));
        }
        replay.Boundary(s);
      }
    }
    Device device(streams);
    std::vector<double> used(streams.size()), all;
    device.Run([&](size_t stream, const Job& job) {
      const Replay::Batch batch =
          replay.Complete(static_cast<Replay::StreamId>(stream),
                          Nanos(static_cast<int64_t>(std::llround(job.ended * 1000))));
      used[stream] += batch.used_ns * 1e-3;
      all.push_back(batch.used_ns);
      EXPECT_NEAR(batch.late_ns, 0, 50);  // costs are floats
      EXPECT_EQ(batch.commands.size(), job.kernels.size());
    });
    for (size_t s = 0; s < streams.size(); ++s) EXPECT_NEAR(used[s], device.used[s], 1) << s;
    Replay copy = before.Copy();
    std::vector<double> again;
    for (const Replay::Call& call : calls) {
      const std::optional<Replay::Batch> batch = copy.Repeat(call);
      if (batch.has_value()) again.push_back(batch->used_ns);
    }
    EXPECT_EQ(again, all);
  }
}

// What is launched may run otherwise than predicted, and any call may come at any time.
TEST(BranchedGraph, PropertyChargesNeverExceedElapsedTime) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int lo, int hi) {
      return std::uniform_int_distribution<int>(lo, hi)(random);
    };
    const std::vector<std::vector<Job>> streams = Streams(seed).streams;
    Replay replay(kSms);
    std::vector<Replay::StreamId> ids;
    for (uint32_t s = 0; s < streams.size(); ++s) ids.push_back(replay.AddStream(s, pick(-1, 0)));
    Nanos now(0);
    double charged = 0;
    for (int i = 0; i < 300; ++i) {
      const auto s = static_cast<size_t>(pick(0, static_cast<int>(ids.size()) - 1));
      const Job& job = streams[s][static_cast<size_t>(pick(0, 11))];
      now += Micros(pick(0, 60));
      switch (pick(0, 9)) {
        case 0:
        case 1:
        case 2: {
          GraphShape kernels;
          for (const Job::Kernel& kernel : job.kernels) {
            kernels.push_back(
                {static_cast<float>(pick(1, 10)) * 0.1f, static_cast<float>(kernel.sms) / kSms});
          }
          replay.AppendGraph(ids[s], Whole(pick(5, 300)), ShapeOf(kernels, EdgesOf(job)), now);
          replay.Boundary(ids[s], pick(0, 1) == 0);
          break;
        }
        case 3:
          replay.Append(ids[s], Kernel(pick(1, 100), 0.01 * pick(1, 250)), now);
          break;
        case 4:
          replay.Refuse(ids[s], 7);
          break;
        case 5:
          replay.Abandon(ids[s]);
          break;
        case 6:
          if (pick(0, 9) > 0) break;
          replay.RemoveStream(ids[s]);
          ids[s] = replay.AddStream(static_cast<uint32_t>(s), 0);
          break;
        case 7:
          replay.UsedSoFar(ids[s], now);
          break;
        default:
          if (replay.pending(ids[s]) == 0) break;
          replay.Stamped(ids[s], pick(0, 2) == 0);
          charged += replay.Complete(ids[s], now).used_ns;
          break;
      }
    }
    EXPECT_LE(charged, static_cast<double>(now.count()) + 1);
    EXPECT_GT(charged, 0);
  }
}

// -- Studies --

struct Case {
  Job graph;
  std::vector<Job::Kernel> others;
};

std::optional<GraphShape> Study(const Case& studied, GraphStudy::Graph about) {
  GraphShape lengths;
  for (const Job::Kernel& kernel : studied.graph.kernels) {
    lengths.push_back({static_cast<float>(kernel.us), static_cast<float>(kernel.sms) / kSms});
  }
  about.count = static_cast<uint32_t>(lengths.size());
  about.edges = EdgesOf(studied.graph);
  about.taken = {{1, 1}};
  about.sm_count = kSms;
  const double whole = LengthTogether(lengths, *Branches::Of(about.count, *about.edges), kSms);
  std::vector<std::vector<Job>> streams(2);
  for (int i = 0; i < 40; ++i) {
    streams[0].push_back(studied.graph);
    for (const Job::Kernel& kernel : studied.others) streams[1].push_back({{kernel}});
  }
  Replay replay(kSms);
  const auto graph = replay.AddStream(0, 0), others = replay.AddStream(1, 0);
  GraphStudy study(about);
  study.Begin(replay);
  for (size_t i = 0; i < streams[0].size(); ++i) {
    Replay::Command command = Whole(whole);
    command.studied = command.opaque = true;
    replay.Append(graph, command, Nanos(0));
    replay.Boundary(graph);
  }
  for (const Job& job : streams[1]) {
    replay.Append(others, Kernel(job.kernels[0].us, 0.01 * job.kernels[0].sms), Nanos(0));
    replay.Boundary(others);
  }
  Device device(streams);
  device.Run([&](size_t stream, const Job& job) {
    replay.Complete(stream == 0 ? graph : others,
                    Nanos(static_cast<int64_t>(std::llround(job.ended * 1000))));
  });
  study.End(replay);
  while (study.Step(200)) {
  }
  EXPECT_NE(study.branches(), nullptr);
  return study.found();
}

// Two branches that join, of 120 and 40 us on 30 SMs and of 50 us on 50, and take 185 us with what follows.
constexpr double kForkedUs = 185;
const Case kForked = {{{{120, 30}, {50, 50}, {40, 30, {0}}, {25, 80, {1, 2}}}},
                      {{90, 40}, {160, 40}, {70, 40}}};

TEST(GraphStudyOfBranches, BelievesTheLengthsThatItsKernelsHaveByThemselves) {
  GraphShape measured;
  for (const Job::Kernel& kernel : kForked.graph.kernels) {
    // They take 200 us together.
    measured.push_back(
        {static_cast<float>(kernel.us / 200), static_cast<float>(kernel.sms) / kSms});
  }
  const std::optional<GraphShape> found = Study(kForked, {.measured = measured});
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->size(), 4u);
  double sum = 0;
  for (const GraphPart& kernel : *found) sum += static_cast<double>(kernel.length);
  EXPECT_NEAR(static_cast<double>((*found)[0].length) / sum, 120.0 / 235, 0.01);
  // The kernels do other work in the graph if they add up to another time.
  for (GraphPart& kernel : measured) kernel.length *= 2;
  EXPECT_FALSE(Study(kForked, {.measured = measured}).has_value());
}

// Lengths of kernels that run side by side can hardly be told apart. What others are charged depends on the SMs that they hold
// together, in the mean.
TEST(GraphStudyOfBranches, FindsHowMuchOfTheDeviceItHolds) {
  const ShapeSearch::Kernels kinds = {{0, 0.3f}, {1, 0.5f}, {2, 0.3f}, {3, 0.8f}};
  const std::optional<GraphShape> found = Study(kForked, {.kernels = kinds});
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->size(), 4u);
  double held = 0, really = 0;
  for (size_t i = 0; i < found->size(); ++i) {
    const Job::Kernel& kernel = kForked.graph.kernels[i];
    held += static_cast<double>((*found)[i].length) * static_cast<double>((*found)[i].footprint);
    really += kernel.us / kForkedUs * kernel.sms / kSms;
  }
  EXPECT_NEAR(held, really, 0.2 * really);  // without a study it counts as twice that
}

}  // namespace
}  // namespace gpushare::meter::branches_test
