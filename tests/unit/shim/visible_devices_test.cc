// SPDX-License-Identifier: Apache-2.0
#include "shim/visible_devices.h"

#include "gtest/gtest.h"

namespace gpushare::shim {
namespace {

constexpr char kUuid[] = "GPU-12345678-aaaa-bbbb-cccc-000000000001";

std::optional<int> Place(std::string_view list, unsigned index = 1) {
  return PlaceAmong(list, index, /*count=*/4, kUuid);
}

TEST(VisibleDevices, ByNumber) {
  EXPECT_EQ(Place("1"), 0);
  EXPECT_EQ(Place("3,2, 1 ,0"), 2);
  EXPECT_EQ(Place("0,2,3"), std::nullopt);
}

TEST(VisibleDevices, ByUuidOrItsBeginning) {
  EXPECT_EQ(Place(kUuid), 0);
  EXPECT_EQ(Place("GPU-0000,GPU-1234"), 1);
  EXPECT_EQ(Place("GPU-0000,1"), 1);
  EXPECT_EQ(Place("GPU-12345678-aaaa-bbbb-cccc-0000000000012"), std::nullopt);
  EXPECT_EQ(PlaceAmong("GPU-1,MIG-7", 0, 1, "MIG-77"), 1);
}

TEST(VisibleDevices, TheListEndsWithWhatNamesNone) {
  EXPECT_EQ(Place(""), std::nullopt);
  EXPECT_EQ(Place("-1"), std::nullopt);
  EXPECT_EQ(Place("0,-1,1"), std::nullopt);
  EXPECT_EQ(Place("7,1"), std::nullopt);
  EXPECT_EQ(Place("1,-1"), 0);
  EXPECT_EQ(Place("none"), std::nullopt);
  EXPECT_EQ(Place("0,,1"), std::nullopt);
  EXPECT_EQ(Place("99999999999999999999"), std::nullopt);
}

}  // namespace
}  // namespace gpushare::shim
