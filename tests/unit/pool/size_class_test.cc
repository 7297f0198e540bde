// SPDX-License-Identifier: Apache-2.0
#include "pool/size_class.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gpushare::pool {
namespace {

TEST(SizeClassTest, EveryBlockOfTheClassAboveFits) {
  // All sizes up to 8 MiB, and the sizes around each larger power of two.
  std::vector<uint64_t> sizes;
  for (uint64_t granules = 1; granules <= 1 << 14; ++granules) sizes.push_back(granules);
  for (int log = 14; log <= 39; ++log) {
    for (int off = -2; off <= 2; ++off) {
      const uint64_t granules = (uint64_t{1} << log) + static_cast<uint64_t>(off);
      if (granules <= kMostBytes / kGranule) sizes.push_back(granules);
    }
  }
  // The smallest size of each class.
  std::vector<uint64_t> least(kClasses + 1, UINT64_MAX);
  for (const uint64_t granules : sizes) {
    ASSERT_LT(ClassOf(granules), kClasses) << granules;
    least[ClassOf(granules)] = std::min(least[ClassOf(granules)], granules);
  }
  for (const uint64_t granules : sizes) {
    const uint32_t above = ClassAbove(granules);
    ASSERT_LE(above, kClasses) << granules;
    ASSERT_LE(above, ClassOf(granules) + 1) << granules;
    if (above < kClasses && least[above] != UINT64_MAX) {
      ASSERT_GE(least[above], granules);
    }
  }
}

TEST(SizeClassTest, AClassSpansASixteenth) {
  for (uint64_t granules = 16; granules < 1 << 14; ++granules) {
    uint64_t last = granules;
    while (ClassOf(last + 1) == ClassOf(granules)) ++last;
    ASSERT_LE(last - granules, granules / 16) << granules;
  }
}

TEST(SizeClassTest, ClassesGrowWithSizes) {
  for (uint64_t granules = 1; granules < 1 << 16; ++granules) {
    const uint32_t step = ClassOf(granules + 1) - ClassOf(granules);
    ASSERT_LE(step, 1u) << granules;
  }
}

}  // namespace
}  // namespace gpushare::pool
