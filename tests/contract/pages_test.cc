// SPDX-License-Identifier: Apache-2.0
// What the SDK charges where the device hands out pages of 2 MiB.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "books/books.h"
#include "device/process/broker_share.h"
#include "device/process/runtime.h"
#include "driver/driver.h"
#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/runtime.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"
#include "tests/support/must.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

// The process's runtime, which stays until the process ends.
device::Runtime& InPages() {
  static device::Runtime* const runtime = [] {
    setenv("GPUSHARE_SIM", "memory=1GiB,clock=virtual,page=2MiB", 1);
    static const auto* const driver = new auto(Must(driver::Driver::Open({.path = "sim"})));
    void* const handle = dlopen((*driver)->path().c_str(), RTLD_NOW | RTLD_NOLOAD);
    return Must(device::Runtime::CreateOfProcess(
                    handle, (*driver)->path().c_str(), {}, {},
                    [](const device::Runtime&, int) { return device::Runtime::Share{}; }))
        .get();
  }();
  return *runtime;
}

class PagesTest : public ::testing::Test {
 protected:
  PagesTest() : books_(InPages().books()) {}
  uint64_t used() const { return device_.stats()->memory.used.count(); }
  ~PagesTest() override { EXPECT_TRUE(books_.CheckInvariants().ok()) << books_.CheckInvariants(); }

  books::Books& books_;
  const Runtime runtime_ = Must(Runtime::Create());
  const Gpu gpu_ = Must(Gpu::Open(runtime_));
  const Tenant tenant_ = Must(Tenant::Create(runtime_, {.name = "a"}));
  const VirtualDevice device_ = Must(VirtualDevice::Create(gpu_, tenant_, "memory=63MiB"));
};

TEST_F(PagesTest, WhatIsRefusedAtTheQuotaLeavesNoTrace) {
  for (const OverQuota over : {OverQuota::kFail, OverQuota::kWait}) {
    const Allocator allocator =
        Must(Allocator::Create(device_, {.strategy = AllocationStrategy::kDirect,
                                         .over_quota = over,
                                         .timeout = absl::Milliseconds(1)}));
    {
      const Allocation most = Must(allocator.Allocate(MiB(60)));
      EXPECT_EQ(used(), MiB(60).count());
      for (int i = 0; i < 10; ++i) {
        const absl::Status refused =
            allocator.Allocate(MiB(3)).status();  // takes 4 of the 3 that are left
        EXPECT_FALSE(refused.ok());
        EXPECT_THAT(refused.message(), HasSubstr("would take 4 MiB"));
        EXPECT_EQ(used(), MiB(60).count());
      }
      EXPECT_TRUE(allocator.Allocate(MiB(2)).ok());
      EXPECT_EQ(used(), MiB(60).count());
    }
    EXPECT_EQ(used(), 0u);
  }
}

TEST_F(PagesTest, WhatCanNeverFitIsNotWaitedFor) {
  const Allocator allocator = Must(Allocator::Create(
      device_, {.strategy = AllocationStrategy::kDirect, .over_quota = OverQuota::kWait}));
  EXPECT_TRUE(absl::IsResourceExhausted(allocator.Allocate(MiB(63)).status()));  // takes 64
}

TEST_F(PagesTest, APoolThatIsShortOfMemoryGrowsByPagesToo) {
  const Allocator direct =
      Must(Allocator::Create(device_, {.strategy = AllocationStrategy::kDirect}));
  const Allocation most = Must(direct.Allocate(MiB(56)));
  const Allocator pool =
      Must(Allocator::Create(device_, {.strategy = AllocationStrategy::kSuballocating}));
  std::vector<Allocation> pieces;
  for (;;) {
    absl::StatusOr<Allocation> piece = pool.Allocate(MiB(1) + Bytes(512));
    if (!piece.ok()) break;
    pieces.push_back(*std::move(piece));
  }
  EXPECT_EQ(pieces.size(), 3u);  // of 2 MiB each in the 7 that are left
  EXPECT_EQ(used(), MiB(62).count());
}

}  // namespace
}  // namespace gpushare
