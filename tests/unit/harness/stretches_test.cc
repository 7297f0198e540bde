// SPDX-License-Identifier: Apache-2.0
#include "harness/stretches.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace gpushare::harness {
namespace {

std::vector<std::pair<int64_t, int64_t>> InMicros(const std::vector<Stretch>& stretches) {
  std::vector<std::pair<int64_t, int64_t>> micros;
  for (const Stretch& each : stretches) {
    micros.emplace_back(each.from / Micros(1), each.to / Micros(1));
  }
  return micros;
}
using Expected = std::vector<std::pair<int64_t, int64_t>>;

TEST(Stretches, OfRequestsThatOverlapAreOne) {
  TenantOutcome tenant;
  tenant.requests = {{Micros(10), Micros(20)}, {Micros(20), Micros(30)}, {Micros(100), Micros(5)}};
  EXPECT_EQ(InMicros(Serving(tenant, Seconds(1))), (Expected{{10, 50}, {100, 105}}));
  // Unserved requests were waiting until the end.
  tenant.unserved = {Micros(200), Micros(300)};
  EXPECT_EQ(InMicros(Serving(tenant, Micros(400))), (Expected{{10, 50}, {100, 105}, {200, 400}}));
  EXPECT_TRUE(Serving({}, Seconds(1)).empty());
}

TEST(Stretches, InFlightIsARequestFromItsFirstCommandOn) {
  TenantOutcome tenant;
  // The second request waited for the first. The last two form a batch, which waited for the second of them.
  tenant.requests = {{Micros(10), Micros(20), Micros(11)},
                     {Micros(20), Micros(30), Micros(30)},
                     {Micros(100), Micros(15), Micros(108)},
                     {Micros(108), Micros(7), Micros(108)}};
  tenant.unserved = {Micros(200)};  // so none of its commands was launched
  EXPECT_EQ(InMicros(InFlight(tenant)), (Expected{{11, 50}, {108, 115}}));
  EXPECT_TRUE(InFlight({}).empty());
}

TEST(Stretches, OfSeveralAreUnitedWithWhatComesAfterEach) {
  const std::vector<Stretch> any = {
      {Micros(100), Micros(110)}, {Micros(10), Micros(20)}, {Micros(125), Micros(130)}};
  EXPECT_EQ(InMicros(United(any)), (Expected{{10, 20}, {100, 110}, {125, 130}}));
  EXPECT_EQ(InMicros(United(any, Micros(15))), (Expected{{10, 35}, {100, 145}}));
}

TEST(Stretches, AndTheRestAreAllOfTheTime) {
  const std::vector<Stretch> some = {{Micros(10), Micros(20)}, {Micros(40), Micros(60)}};
  const Stretch all = {Micros(15), Micros(50)};
  EXPECT_EQ(InMicros(Within(some, all)), (Expected{{15, 20}, {40, 50}}));
  EXPECT_EQ(InMicros(Between(some, all)), (Expected{{20, 40}}));
  EXPECT_EQ(LengthOf(Within(some, all)) + LengthOf(Between(some, all)), 35e3);
  EXPECT_EQ(InMicros(Between({}, all)), (Expected{{15, 50}}));
  EXPECT_TRUE(Between({{Nanos(0), Seconds(1)}}, all).empty());
}

TEST(Stretches, DeviceTimeIsReadBetweenSamples) {
  TenantOutcome tenant;
  tenant.fine_ns = {0, 100'000, 100'000, 150'000};  // the whole device, nothing, half
  const Nanos fine = Micros(100);
  EXPECT_DOUBLE_EQ(UsedIn(tenant, fine, {{Micros(50), Micros(150)}}), 50e3);
  EXPECT_DOUBLE_EQ(UsedIn(tenant, fine, {{Nanos(0), Micros(10)}, {Micros(200), Micros(220)}}),
                   20e3);
  EXPECT_DOUBLE_EQ(UsedIn(tenant, fine, {{Nanos(0), Seconds(1)}}), 150e3);  // until the last sample
  EXPECT_EQ(UsedIn({}, fine, {{Nanos(0), Seconds(1)}}), 0);
}

}  // namespace
}  // namespace gpushare::harness
