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
  EXPECT_EQ(parts->Find(Exec(0x1000)).footprint, 1);  // of what nobody saw: the whole device
  for (const float footprint : {1e-4f, 0.125f, 0.5f, 1.0f}) {
    parts->Put(Exec(0x1000), {7, footprint});
    EXPECT_EQ(parts->Find(Exec(0x1000)).commands, 7u);
    EXPECT_NEAR(parts->Find(Exec(0x1000)).footprint, footprint, 1e-5);
  }
  EXPECT_EQ(parts->Find(Exec(0x2000)).commands, 0u);
}

TEST(GraphParts, WhatDoesNotFitIsCutOff) {
  const auto parts = std::make_unique<GraphParts>();
  parts->Put(Exec(0x1000), {1'000'000, 63});
  EXPECT_EQ(parts->Find(Exec(0x1000)).commands, 0xffffu);
  EXPECT_EQ(parts->Find(Exec(0x1000)).footprint, 1);
  parts->Put(Exec(0x1000), {0, 0});
  EXPECT_EQ(parts->Find(Exec(0x1000)).commands, 0u);
  EXPECT_GT(parts->Find(Exec(0x1000)).footprint, 0);  // none would be a copy within the device
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
  EXPECT_FLOAT_EQ(of({0.8f, 8}), 0.9f);  // however many waves
  EXPECT_EQ(of({0.25f, 0.75f}), 1);      // as long as the others the wide one need not be
  EXPECT_EQ(of({0.5f, 0}), 1);
  EXPECT_EQ(of({0.25f}, 1), 1);  // a copy
  EXPECT_EQ(of({}, 0, false), 1);
  EXPECT_EQ(of({0.25f}, 0, false), 1);  // bodies of conditional nodes besides
}

}  // namespace
}  // namespace gpushare::gate
