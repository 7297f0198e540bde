// SPDX-License-Identifier: Apache-2.0
#include "gate/work_keys.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "gate/footprint.h"

namespace gpushare::gate {
namespace {

const void* Exec(uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(GraphParts, GivesBackWhatWasPut) {
  const auto parts = std::make_unique<GraphParts>();
  EXPECT_EQ(parts->Find(Exec(0x1000)).commands, 0u);
  EXPECT_EQ(parts->Find(Exec(0x1000)).footprint, 1);  // an unknown graph counts as the whole device
  for (const float footprint : {1e-4f, 0.125f, 0.5f, 1.0f, 2.5f, 63.0f}) {
    parts->Put(Exec(0x1000), {7, footprint});
    EXPECT_EQ(parts->Find(Exec(0x1000)).commands, 7u);
    EXPECT_NEAR(parts->Find(Exec(0x1000)).footprint, footprint, 1e-5);
  }
  EXPECT_EQ(parts->Find(Exec(0x2000)).commands, 0u);
}

TEST(GraphParts, WhatDoesNotFitIsCutOff) {
  const auto parts = std::make_unique<GraphParts>();
  parts->Put(Exec(0x1000), {1'000'000, 1000});
  EXPECT_EQ(parts->Find(Exec(0x1000)).commands, 0xffffu);
  EXPECT_EQ(parts->Find(Exec(0x1000)).footprint, kMostFootprint);
  parts->Put(Exec(0x1000), {0, 0});
  EXPECT_EQ(parts->Find(Exec(0x1000)).commands, 0u);
  EXPECT_GT(parts->Find(Exec(0x1000)).footprint,
            0);  // not zero, which would mean a copy within the device
}

TEST(GraphParts, AFootprintIsKeptToAPartInFourThousand) {
  const auto parts = std::make_unique<GraphParts>();
  for (float footprint = 1.0f / 256; footprint < kMostFootprint; footprint *= 1.0371f) {
    parts->Put(Exec(0x1000), {1, footprint});
    EXPECT_NEAR(parts->Find(Exec(0x1000)).footprint, footprint, footprint / 4000);
  }
}

TEST(GraphFootprint, IsTheMeanOfKernelsOfLikeWidth) {
  const auto of = [](std::initializer_list<float> footprints, uint32_t others = 0,
                     bool all = true) {
    driver::GraphContents graph;
    std::vector<float> found(footprints);
    for (size_t i = 0; i < found.size(); ++i) {
      graph.kernels.push_back({reinterpret_cast<driver::Function>(i + 1), {}});
    }
    graph.commands = static_cast<uint32_t>(found.size()) + others;
    graph.all_kernels = all;
    return GraphFootprint(graph, [&](const driver::GraphKernel& kernel) {
      const float footprint = found[reinterpret_cast<uintptr_t>(kernel.function) - 1];
      return footprint > 0 ? footprint : 1;  // 0: the driver does not say
    });
  };
  EXPECT_EQ(of({}), 1);
  EXPECT_FLOAT_EQ(of({0.25f}), 0.25f);
  EXPECT_FLOAT_EQ(of({0.4f, 0.6f}), 0.5f);
  EXPECT_EQ(of({0.8f, 8}), 5 * 0.9f);       // the mean of one and eight waves
  EXPECT_FLOAT_EQ(of({2.5f, 2.5f}), 2.5f);  // the third wave leaves half of the SMs free
  EXPECT_FLOAT_EQ(of({0.8f, 2.5f}), 2 * (0.8f + 2.5f / 3) / 2);
  EXPECT_EQ(
      of({1, 1.01f}),
      1);  // only the second kernel, which may be long, has a tail that leaves all but one of the SMs
  EXPECT_EQ(of({1.01f, 1.01f}), 1);  // likewise if both have such a tail
  EXPECT_EQ(of({1.49f, 1.49f}), 1);
  EXPECT_FLOAT_EQ(of({1.5f, 1.5f}), 1.5f);
  EXPECT_EQ(of({0.25f, 0.75f}), 1);  // the wide kernel may be much shorter than the others
  EXPECT_EQ(of({0.5f, 0}), 1);
  EXPECT_EQ(of({0.25f}, 1), 1);  // with a copy
  EXPECT_EQ(of({}, 0, false), 1);
  EXPECT_EQ(of({0.25f}, 0, false), 1);  // with bodies of conditional nodes besides
}

TEST(GraphFootprint, NeverGrowsNarrowerByAChange) {
  EXPECT_EQ(FootprintAfterChange(0.2f, 0), 0.2f);     // a copy
  EXPECT_EQ(FootprintAfterChange(0.2f, 0.1f), 0.2f);  // other kernels may be as wide as before
  EXPECT_EQ(FootprintAfterChange(0.2f, 0.7f), 0.7f);  // and as long
  EXPECT_EQ(FootprintAfterChange(0.2f, 1), 1);
  EXPECT_EQ(FootprintAfterChange(0.2f, 1.01f),
            1);  // the number of waves of the other kernels is unknown
  EXPECT_EQ(FootprintAfterChange(2.5f, 2.5f), 2.5f);
  EXPECT_EQ(FootprintAfterChange(2.5f, 2.501f), 2.5f);  // the stored value is rounded
  EXPECT_EQ(FootprintAfterChange(2.5f, 0.5f), 2.5f);
  EXPECT_EQ(FootprintAfterChange(2.5f, 0.9f), 1);
  EXPECT_EQ(FootprintAfterChange(2.5f, 1), 1);
  EXPECT_EQ(FootprintAfterChange(1, 0.3f), 1);
}

}  // namespace
}  // namespace gpushare::gate
