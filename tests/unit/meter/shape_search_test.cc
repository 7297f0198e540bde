// SPDX-License-Identifier: Apache-2.0
#include "meter/shape_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace gpushare::meter {
namespace {

// The distance of a shape from `truth`, in the logarithms of its lengths and footprints.
double Off(const GraphShape& shape, const GraphShape& truth) {
  if (shape.size() != truth.size()) return 100;
  double off = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    off += std::pow(std::log(static_cast<double>(shape[i].length / truth[i].length)), 2);
    off += std::pow(std::log(static_cast<double>(shape[i].footprint / truth[i].footprint)), 2);
  }
  return off;
}

struct Found {
  GraphShape shape;
  double pace = 1;
  int tries = 0;
};
Found Search(const ShapeSearch::Kernels& kernels, const GraphShape& truth, double pace,
             const GraphShape& before = {}) {
  ShapeSearch search(kernels, ShapeSearch::Starts(kernels, before));
  Found found;
  while (const ShapeSearch::Guess* guess = search.Next()) {
    search.Tell(Off(guess->ShapeOf(kernels), truth) + std::pow(std::log(guess->pace() / pace), 2));
    ++found.tries;
  }
  found.shape = search.best().ShapeOf(kernels);
  found.pace = search.best().pace();
  return found;
}

// Kernels of one kind have one length, and each keeps its footprint.
TEST(ShapeSearch, FindsTheLengthsOfKernels) {
  const ShapeSearch::Kernels kernels = {{0, 0.5f}, {1, 1}, {0, 0.5f}, {2, 2.5f}};
  const GraphShape truth = {{0.05f, 0.5f}, {0.1f, 1}, {0.05f, 0.5f}, {0.8f, 2.5f}};
  const Found found = Search(kernels, truth, 0.9);
  ASSERT_EQ(found.shape.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(found.shape[i].length, truth[i].length, 0.1 * static_cast<double>(truth[i].length));
    EXPECT_EQ(found.shape[i].footprint, kernels[i].footprint);
  }
  EXPECT_EQ(found.shape[0].length, found.shape[2].length);
  EXPECT_NEAR(found.pace, 0.9, 0.05);
  EXPECT_LT(found.tries, 1000);
}

TEST(ShapeSearch, FindsPartsAndFootprintWhereNothingIsKnown) {
  const GraphShape truth = {{0.2f, 0.5f}, {0.5f, 0.5f}, {0.3f, 0.5f}};
  const Found found = Search({}, truth, 1);
  ASSERT_EQ(found.shape.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(found.shape[i].length, truth[i].length, 0.05);
    EXPECT_NEAR(found.shape[i].footprint, 0.5, 0.05);
  }
  EXPECT_LT(found.tries, 1000);
}

// When two shapes predict about equally well, the earlier finding is kept unless the other is clearly better.
TEST(ShapeSearch, KeepsWhatWasFoundBeforeUnlessAnotherIsClearlyBetter) {
  const ShapeSearch::Kernels kernels = {{0, 1}, {1, 1}};
  const GraphShape before = {{0.9f, 1}, {0.1f, 1}}, other = {{0.1f, 1}, {0.9f, 1}};
  const auto found = [&](double of_before) {
    ShapeSearch search(kernels, ShapeSearch::Starts(kernels, before));
    while (const ShapeSearch::Guess* guess = search.Next()) {
      const GraphShape shape = guess->ShapeOf(kernels);
      search.Tell(std::min(of_before + Off(shape, before), 1 + Off(shape, other)));
    }
    return search.best().ShapeOf(kernels)[0].length;
  };
  EXPECT_NEAR(found(1.1), 0.9, 0.02);
  EXPECT_NEAR(found(2), 0.1, 0.02);
}

// With a single kind of kernel there is nothing to distinguish.
TEST(ShapeSearch, OneKindHasOneLength) {
  const ShapeSearch::Kernels kernels = {{0, 1}, {0, 1}};
  const Found found = Search(kernels, {{0.5f, 1}, {0.5f, 1}}, 1);
  EXPECT_EQ(found.shape, (GraphShape{{0.5f, 1}, {0.5f, 1}}));
}

}  // namespace
}  // namespace gpushare::meter
