// SPDX-License-Identifier: Apache-2.0
#include "device/share/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace gpushare::device {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A GPU of `total` GiB of which `left` GiB are left, and a part of its time.
Room Gpu(uint64_t total, uint64_t left, double guarantee_left = 1, uint64_t devices = 1) {
  return {total * kGiB, left * kGiB, guarantee_left, devices};
}
std::vector<Candidate> All(const std::vector<Room>& rooms, uint64_t gib, double guarantee = 0) {
  std::vector<Candidate> all;
  for (const Room& room : rooms) all.push_back({room, {gib * kGiB, guarantee}});
  return all;
}

TEST(PlacementTest, BestFitLeavesLeastOver) {
  const auto all = All({Gpu(80, 70), Gpu(40, 11), Gpu(80, 12), Gpu(80, 9)}, 10);
  EXPECT_THAT(OrderOfTrial(Placement::kBestFit, all), ElementsAre(1, 2, 0, 3));
}

TEST(PlacementTest, BestFitCountsOnlyWhatIsAskedFor) {
  // The second has less time left, which does not matter for this request.
  const auto all = All({Gpu(80, 20, 1.0), Gpu(80, 30, 0.1)}, 10);
  EXPECT_THAT(OrderOfTrial(Placement::kBestFit, all), ElementsAre(0, 1));
  const auto both = All({Gpu(80, 20, 1.0), Gpu(80, 30, 0.1)}, 10, 0.1);
  EXPECT_THAT(OrderOfTrial(Placement::kBestFit, both), ElementsAre(1, 0));
}

TEST(PlacementTest, BinpackTakesTheFullestAndSpreadTheEmptiest) {
  // By fractions: the small one is half full, and the large one a quarter, by its time.
  const auto all = All({Gpu(80, 70, 0.75), Gpu(16, 8), Gpu(80, 80, 1, 0)}, 4);
  EXPECT_THAT(OrderOfTrial(Placement::kBinpack, all), ElementsAre(1, 0, 2));
  EXPECT_THAT(OrderOfTrial(Placement::kSpread, all), ElementsAre(2, 0, 1));
}

TEST(PlacementTest, WithoutPromisesTheNumberOfVirtualDevicesDecides) {
  std::vector<Candidate> all;
  for (const uint64_t devices : {3u, 1u, 2u}) all.push_back({Gpu(80, 80, 1, devices), {}});
  EXPECT_THAT(OrderOfTrial(Placement::kSpread, all), ElementsAre(1, 2, 0));
  EXPECT_THAT(OrderOfTrial(Placement::kBinpack, all), ElementsAre(0, 2, 1));
  EXPECT_THAT(OrderOfTrial(Placement::kBestFit, all), ElementsAre(0, 2, 1));
}

TEST(PlacementTest, EqualsKeepTheirOrder) {
  const auto all = All({Gpu(80, 80), Gpu(80, 80), Gpu(80, 80)}, 1);
  for (const Placement placement : {Placement::kBestFit, Placement::kBinpack, Placement::kSpread}) {
    EXPECT_THAT(OrderOfTrial(placement, all), ElementsAre(0, 1, 2));
  }
}

TEST(PlacementTest, WhatFitsComesFirstInEveryOrder) {
  std::minstd_rand random(1);  // NOLINT(cert-msc51-cpp): every run is the same
  for (int round = 0; round < 2000; ++round) {
    std::vector<Candidate> all;
    for (size_t i = random() % 8; i > 0; --i) {
      const uint64_t total = 1 + random() % 80;
      const auto tenths = [&] { return static_cast<double>(random() % 11) / 10; };
      all.push_back({Gpu(total, random() % (total + 1), tenths(), random() % 4),
                     {random() % 40 * kGiB, tenths()}});
    }
    for (const Placement placement :
         {Placement::kBestFit, Placement::kBinpack, Placement::kSpread}) {
      const std::vector<size_t> order = OrderOfTrial(placement, all);
      EXPECT_THAT(order, ::testing::SizeIs(all.size()));
      EXPECT_TRUE(
          std::is_partitioned(order.begin(), order.end(), [&](size_t i) { return Fits(all[i]); }));
      EXPECT_EQ(std::set<size_t>(order.begin(), order.end()).size(), all.size());
    }
  }
}

}  // namespace
}  // namespace gpushare::device
