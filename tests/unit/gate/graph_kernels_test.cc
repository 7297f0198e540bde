// SPDX-License-Identifier: Apache-2.0
#include "gate/graph_kernels.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "gate/footprint.h"
#include "gate/graphs.h"

namespace gpushare::gate {
namespace {

using meter::CostModel;

const void* ExecOf(uintptr_t address) { return reinterpret_cast<const void*>(address); }

// A graph with one kernel for each number of blocks.
driver::GraphContents GraphOf(std::initializer_list<unsigned> blocks) {
  driver::GraphContents graph;
  for (const unsigned grid : blocks) {
    graph.kernels.push_back(
        {reinterpret_cast<driver::Function>(0x1000), {{grid, 1, 1}, {256, 1, 1}, 0}});
  }
  graph.commands = static_cast<uint32_t>(graph.kernels.size());
  return graph;
}

float Blocks(const driver::GraphKernel& kernel) { return static_cast<float>(kernel.shape.grid.x); }

TEST(KernelsOf, AreThoseOfLaunchesInTheirOrder) {
  const driver::GraphContents graph = GraphOf({1, 2, 1});
  const std::vector<KernelInGraph> kernels = KernelsOf(graph, Blocks).kernels;
  ASSERT_EQ(kernels.size(), 3u);
  for (size_t i = 0; i < kernels.size(); ++i) {
    EXPECT_EQ(kernels[i].key, KernelKey(graph.kernels[i].function, graph.kernels[i].shape));
    EXPECT_EQ(kernels[i].footprint, Blocks(graph.kernels[i]));
  }
  EXPECT_NE(kernels[0].key, kernels[1].key);
}

// Where the driver does not tell what runs at the same time, it is not known how much of the device they leave.
TEST(KernelsOf, FillTheDeviceWhereTheyMayRunAtTheSameTime) {
  driver::GraphContents graph = GraphOf({1, 2});
  const auto half = [](const driver::GraphKernel&) { return 0.5f; };
  EXPECT_EQ(GraphFootprint(graph, half), 0.5f);
  graph.branches = true;
  EXPECT_EQ(GraphFootprint(graph, half), 1);
  std::vector<KernelInGraph> kernels = KernelsOf(graph, half).kernels;
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].footprint, 1);
  EXPECT_EQ(kernels[1].footprint, 1);
  graph.edges.emplace();  // side by side
  const KernelsInGraph told = KernelsOf(graph, half);
  EXPECT_EQ(told.edges, graph.edges);
  ASSERT_EQ(told.kernels.size(), 2u);
  EXPECT_EQ(told.kernels[1].footprint, 0.5f);
  EXPECT_EQ(GraphFootprint(graph, half), 1);
}

TEST(KernelsOf, AreNoneWhereThereIsSomethingElse) {
  driver::GraphContents graph = GraphOf({1, 2});
  ++graph.commands;  // adds a copy
  EXPECT_TRUE(KernelsOf(graph, Blocks).kernels.empty());
  graph = GraphOf({1, 2});
  graph.all_kernels = false;  // the graph also has bodies of conditional nodes
  EXPECT_TRUE(KernelsOf(graph, Blocks).kernels.empty());
  graph.all_kernels = true;
  graph.kernels.resize(CostModel::kMostParts + 1, graph.kernels[0]);
  graph.commands = CostModel::kMostParts + 1;
  EXPECT_TRUE(KernelsOf(graph, Blocks).kernels.empty());
  EXPECT_TRUE(KernelsOf({}, Blocks).kernels.empty());
}

TEST(GraphKernels, GivesBackWhatWasPutAndForgets) {
  GraphKernels kernels;
  EXPECT_TRUE(kernels.Find(ExecOf(1)).kernels.empty());
  kernels.Put(ExecOf(1), {{{7}, {8}}});
  kernels.Put(ExecOf(2), {{{9}, {6}}, {{{0, 1}}}});
  EXPECT_EQ(kernels.Find(ExecOf(1)), (KernelsInGraph{{{7}, {8}}}));
  kernels.Put(ExecOf(1), {{{5}}});  // the handle is reused for another graph
  EXPECT_EQ(kernels.Find(ExecOf(1)), (KernelsInGraph{{{5}}}));
  kernels.Put(ExecOf(1), {});
  EXPECT_TRUE(kernels.Find(ExecOf(1)).kernels.empty());
  EXPECT_EQ(kernels.Find(ExecOf(2)), (KernelsInGraph{{{9}, {6}}, {{{0, 1}}}}));
}

TEST(GraphKernels, ForgetsWhatNobodyAskedAboutForTheLongest) {
  GraphKernels kernels;
  const KernelsInGraph many = {std::vector<KernelInGraph>(CostModel::kMostParts, {3})};
  constexpr uintptr_t kFit =
      GraphKernels::kMostKept / (2 * CostModel::kMostParts + GraphKernels::kWordsPerGraph);
  for (uintptr_t i = 1; i <= kFit; ++i) kernels.Put(ExecOf(i), many);
  EXPECT_EQ(kernels.Find(ExecOf(1)), many);
  kernels.Put(ExecOf(kFit + 1), many);
  EXPECT_EQ(kernels.Find(ExecOf(1)), many);
  EXPECT_TRUE(kernels.Find(ExecOf(2)).kernels.empty());
  EXPECT_EQ(kernels.Find(ExecOf(3)), many);
  EXPECT_EQ(kernels.Find(ExecOf(kFit + 1)), many);
  kernels.Put(ExecOf(kFit + 1), {});  // evicts another entry
  kernels.Put(ExecOf(2), many);
  EXPECT_EQ(kernels.Find(ExecOf(4)), many);
}

TEST(GraphKernels, CountsTheGraphsBesideTheirKernels) {
  GraphKernels kernels;
  constexpr uintptr_t kFit = GraphKernels::kMostKept / (2 + GraphKernels::kWordsPerGraph);
  for (uintptr_t i = 1; i <= kFit + 1; ++i) kernels.Put(ExecOf(i), {{{7}}});
  EXPECT_TRUE(kernels.Find(ExecOf(1)).kernels.empty());
  EXPECT_FALSE(kernels.Find(ExecOf(2)).kernels.empty());
}

class PartsOfTest : public ::testing::Test {
 protected:
  // As if the kernel had been launched twice by itself, after `context`.
  void Measure(uint64_t key, float us, uint64_t context = 0) {
    for (int i = 0; i < 2; ++i) {
      const CostModel::Prediction p = costs_->Predict(key, context, 1);
      costs_->Learn(p.entry, p.cost_ns, us * 1000 / p.cost_ns, 1, true);
    }
  }
  static constexpr uint64_t Key(uint64_t i) { return (i + 1) * 0x9e3779b97f4a7c15u; }

  const std::unique_ptr<CostModel> costs_ = std::make_unique<CostModel>(Micros(20));
};

TEST_F(PartsOfTest, AreAsLongAsTheyWereByThemselves) {
  const KernelsInGraph kernels = {{{Key(1)}, {Key(2)}, {Key(1)}}};
  Measure(Key(1), 10);
  EXPECT_TRUE(PartsOf(*costs_, kernels, 60e3f).empty());  // one kernel was never seen
  Measure(Key(2), 40);
  const std::vector<float> parts = PartsOf(*costs_, kernels, 55e3f);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_FLOAT_EQ(parts[0], 10.0f / 60);
  EXPECT_FLOAT_EQ(parts[1], 40.0f / 60);
  EXPECT_FLOAT_EQ(parts[2], 10.0f / 60);
  EXPECT_FLOAT_EQ(std::accumulate(parts.begin(), parts.end(), 0.0f), 1);
}

// The same kernel may do different work at different places of a network.
TEST_F(PartsOfTest, AreThoseOfTheirPlaceWhereThatIsKnown) {
  const uint64_t after = CostModel::Next(CostModel::Next(0, Key(1)), Key(2));
  Measure(Key(1), 10);
  Measure(Key(2), 30, CostModel::Next(0, Key(1)));
  Measure(Key(1), 60, after);
  const std::vector<float> parts = PartsOf(*costs_, {{{Key(1)}, {Key(2)}, {Key(1)}}}, 100e3f);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_GT(parts[2], 3 * parts[0]);
}

// Then the kernels do other work in the graph.
TEST_F(PartsOfTest, AreNoneWhereTheirSumIsNotTheGraphs) {
  const KernelsInGraph kernels = {{{Key(1)}, {Key(2)}}};
  Measure(Key(1), 50);
  Measure(Key(2), 50);
  EXPECT_TRUE(PartsOf(*costs_, kernels, 50e3f).empty());
  EXPECT_TRUE(PartsOf(*costs_, kernels, 200e3f).empty());
  EXPECT_FALSE(PartsOf(*costs_, kernels, 80e3f).empty());
  EXPECT_FALSE(PartsOf(*costs_, kernels, 130e3f).empty());
  EXPECT_TRUE(PartsOf(*costs_, kernels, 0).empty());
  EXPECT_TRUE(PartsOf(*costs_, {}, 100e3f).empty());
}

// What runs at the same time makes the graph no longer, so their sum may be any.
TEST_F(PartsOfTest, OfBranchesAreEachPartOfTheGraphs) {
  KernelsInGraph graph = {{{Key(1)}, {Key(2)}, {Key(3)}}, {{{0, 1}, {0, 2}}}};
  Measure(Key(1), 50);
  Measure(Key(2), 50);
  Measure(Key(3), 50);
  Measure(Key(3), 75, CostModel::Next(0, Key(1)));  // on a stream of its own, behind the first one
  EXPECT_EQ(PartsOf(*costs_, graph, 100e3f), (std::vector<float>{0.5f, 0.5f, 0.75f}));
  graph.edges = std::nullopt;
  EXPECT_TRUE(PartsOf(*costs_, graph, 100e3f).empty());
}

// The driver reuses handles: the measurement of the previous graph is the estimate until the new graph is measured,
// and no longer.
TEST(Graphs, OneInThePlaceOfAnotherIsAnotherWorkThatIsLikeIt) {
  Graphs graphs;
  const int place = 0;
  const auto width = [](const driver::GraphKernel&) { return 0.5f; };
  const auto instantiate = [&](uint32_t commands) {
    driver::GraphContents contents;
    contents.commands = commands;
    contents.kernels.resize(commands);
    contents.copies = {{.to_device = 100}};
    graphs.Instantiated(&place, contents, width);
  };
  instantiate(3);
  const Work first = graphs.NextLaunch(&place);
  EXPECT_EQ(first.parts, 3u);
  EXPECT_NEAR(first.footprint, 0.5f, 1e-3f);
  EXPECT_EQ(graphs.NextLaunch(&place).key, first.key);
  EXPECT_EQ(graphs.CopiesOf(&place).to_device, 100u);
  graphs.Ended(&place);
  EXPECT_FALSE(graphs.CopiesOf(&place).any());
  instantiate(1);
  const Work next = graphs.NextLaunch(&place);
  EXPECT_NE(next.key, first.key);
  EXPECT_EQ(next.like, first.key);
  EXPECT_EQ(next.parts, 1u);
  graphs.Changed(&place, 1);
  EXPECT_EQ(graphs.NextLaunch(&place).like, next.key);
  EXPECT_EQ(graphs.NextLaunch(&place).footprint, 1);
}

}  // namespace
}  // namespace gpushare::gate
