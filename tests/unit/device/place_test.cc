// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "gpushare/placement.h"
#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

// Three GPUs, each with 7 GiB that can be promised.
class PlaceTest : public DeviceTest {
 protected:
  std::string config() const override {
    return "sms=100,memory=8GiB,overlap=serial,clock=virtual,devices=3,h2d=10GB/s,d2h=10GB/s";
  }
  void SetUp() override {
    DeviceTest::SetUp();
    for (const char* name : {"0", "1", "2"}) gpus_.push_back(Must(Gpu::Open(*runtime_, name)));
  }
  void TearDown() override {
    gpus_.clear();
    DeviceTest::TearDown();
  }
  std::vector<const Gpu*> All() const { return {&gpus_[0], &gpus_[1], &gpus_[2]}; }
  absl::StatusOr<Placed> PlaceOne(const std::string& name, std::string_view spec,
                                  Placement placement = Placement::kBestFit) {
    return Place(All(), MakeTenant(name), spec, placement);
  }

  std::vector<Gpu> gpus_;
};

// A child goes to the GPU of its parent's virtual device, by how much is left there.
TEST_F(PlaceTest, AChildGoesToItsParents) {
  const Tenant team = MakeTenant("team"),
               user = Must(Tenant::Create(*runtime_, {.name = "user", .parent = &team}));
  const absl::Status nowhere = Place(All(), user, "memory=1GiB", Placement::kBestFit).status();
  EXPECT_EQ(nowhere.code(), absl::StatusCode::kFailedPrecondition) << nowhere;
  EXPECT_THAT(std::string(nowhere.message()),
              HasSubstr("GPU 2: its parent 'team' has no virtual device there"));
  // GPU 1 has nothing else left, and GPU 2 has more left for the family than GPU 1.
  const VirtualDevice on_1 =
                          Must(VirtualDevice::Create(gpus_[1], team, "memory=7GiB,compute=100%")),
                      on_2 = Must(VirtualDevice::Create(gpus_[2], team, "memory=2GiB,compute=50%"));
  const Placed first = Must(Place(All(), user, "memory=1GiB,compute=20%", Placement::kBestFit));
  EXPECT_EQ(first.index, 2u);
  const Tenant other = Must(Tenant::Create(*runtime_, {.name = "other", .parent = &team}));
  const Placed second = Must(Place(All(), other, "memory=1GiB,compute=60%", Placement::kBestFit));
  EXPECT_EQ(second.index, 1u);
  const Tenant third = Must(Tenant::Create(*runtime_, {.name = "third", .parent = &team}));
  const absl::Status full = Place(All(), third, "compute=90%", Placement::kBestFit).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(ErrorDetail::Of(full)->left, 400'000u);
}

TEST_F(PlaceTest, ByStrategy) {
  const Placed first = Must(PlaceOne("a", "memory=4GiB,compute=50%"));
  EXPECT_EQ(first.index, 0u);
  EXPECT_EQ(Must(PlaceOne("b", "memory=1GiB", Placement::kSpread)).index, 1u);  // and gone again
  const Placed packed = Must(PlaceOne("c", "memory=1GiB", Placement::kBinpack));
  EXPECT_EQ(packed.index, 0u);
  const Placed fit = Must(PlaceOne("d", "memory=2GiB"));
  EXPECT_EQ(fit.index, 0u);  // to the last byte
  EXPECT_EQ(Must(RoomOf(gpus_[0])).memory_left, Bytes());
  const Placed elsewhere = Must(PlaceOne("e", "memory=2GiB", Placement::kBinpack));
  EXPECT_EQ(elsewhere.index, 1u);
}

TEST_F(PlaceTest, ATenantIsPlacedOnOneGpuAfterTheOther) {
  const Tenant tenant = MakeTenant("a");
  std::vector<Placed> placed;
  for (const size_t expected : {0u, 1u, 2u}) {
    placed.push_back(Must(Place(All(), tenant, "memory=1GiB")));
    EXPECT_EQ(placed.back().index, expected);
  }
  const absl::Status full = Place(All(), tenant, "memory=1GiB").status();
  EXPECT_EQ(full.code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(PlaceTest, AGpuThatHasNothingToPromiseIsPassedOver) {
  const Runtime other = Must(Runtime::Create({.driver = "sim", .memory_reserve = GiB(8)}));
  const Gpu nothing = Must(Gpu::Open(other, "0"));
  const Tenant tenant = Must(Tenant::Create(other, {.name = "a"}));
  const absl::Status refused = Place({&nothing}, tenant, "memory=10%").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("GPU 0: spec field 'memory': 10% of the 0 B that this GPU has"));
  EXPECT_EQ(VirtualDevice::Create(nothing, tenant, "memory=10%").status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(PlaceTest, ARefusalSaysWhyOfEachAndWhatWouldFit) {
  const VirtualDevice a =
      Must(VirtualDevice::Create(gpus_[0], MakeTenant("a"), "memory=6GiB,compute=20%"));
  const VirtualDevice b =
      Must(VirtualDevice::Create(gpus_[1], MakeTenant("b"), "memory=1GiB,compute=90%"));
  const VirtualDevice c =
      Must(VirtualDevice::Create(gpus_[2], MakeTenant("c"), "memory=4GiB,compute=60%"));
  const absl::Status memory = PlaceOne("d", "memory=6.5GiB").status();
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(memory.message()),
              HasSubstr("GPU 2: tenant 'd': 6.5 GiB of memory asked"));
  EXPECT_EQ(ErrorDetail::Of(memory)->limit, "memory");
  EXPECT_EQ(ErrorDetail::Of(memory)->left, GiB(6).count());
  const absl::Status guarantee = PlaceOne("d", "compute=85%").status();
  EXPECT_EQ(ErrorDetail::Of(guarantee)->limit, "guarantee");
  EXPECT_EQ(ErrorDetail::Of(guarantee)->left, 800'000u);
  // Each GPU has enough of either memory or time; beside this guarantee 1 GiB would fit.
  const absl::Status both = PlaceOne("d", "memory=5GiB,compute=50%").status();
  EXPECT_EQ(both.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrorDetail::Of(both)->limit, "memory");
  EXPECT_EQ(ErrorDetail::Of(both)->left, GiB(1).count());
  EXPECT_TRUE(PlaceOne("d", "memory=1GiB,compute=50%").ok());
}

TEST_F(PlaceTest, WhatWouldFitIsOfGpusThatTheTenantIsNotOn) {
  const Tenant tenant = MakeTenant("a");
  const VirtualDevice own = Must(VirtualDevice::Create(gpus_[0], tenant, "memory=1GiB"));
  const VirtualDevice b =
      Must(VirtualDevice::Create(gpus_[1], MakeTenant("b"), "memory=6GiB,compute=90%"));
  const VirtualDevice c =
      Must(VirtualDevice::Create(gpus_[2], MakeTenant("c"), "memory=5GiB,compute=80%"));
  const absl::Status memory = Place(All(), tenant, "memory=4GiB").status();
  EXPECT_EQ(ErrorDetail::Of(memory)->limit, "memory");
  EXPECT_EQ(ErrorDetail::Of(memory)->left, GiB(2).count());
  const absl::Status guarantee = Place(All(), tenant, "compute=50%").status();
  EXPECT_EQ(ErrorDetail::Of(guarantee)->limit, "guarantee");
  EXPECT_EQ(ErrorDetail::Of(guarantee)->left, 200'000u);
}

TEST_F(PlaceTest, NonsenseIsRefused) {
  const Tenant tenant = MakeTenant("a");
  const auto code = [](const absl::StatusOr<Placed>& placed) { return placed.status().code(); };
  EXPECT_EQ(code(Place({}, tenant, "")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Place({nullptr}, tenant, "")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Place({&gpus_[0], &gpus_[0]}, tenant, "")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Place(All(), tenant, "memory=lots")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Place(All(), tenant, "", static_cast<Placement>(7))),
            absl::StatusCode::kInvalidArgument);
  gpushare_vdev device = nullptr;
  EXPECT_EQ(gpushare_vdev_place(nullptr, 1, tenant.handle(), nullptr, 0, &device, nullptr),
            GPUSHARE_INVALID_ARGUMENT);
  EXPECT_THAT(gpushare_last_message(), HasSubstr("'gpus' is null"));
  EXPECT_EQ(Must(RoomOf(gpus_[0])).virtual_devices, 0u);
}

}  // namespace
}  // namespace gpushare
