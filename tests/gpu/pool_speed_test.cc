// SPDX-License-Identifier: Apache-2.0
// The cost of an allocation and its free: the driver's cuMemAlloc, its stream-ordered pool (which cudaMallocAsync
// uses), and gpushare's suballocating pool, side by side.
#include <chrono>
#include <functional>
#include <iostream>

#include "gpushare/allocator.h"
#include "tests/gpu/bed.h"

namespace gpushare::gpu_test {
namespace {

class PoolSpeed : public GpuTest {
 protected:
  static constexpr int kPairs = 2000;

  // By the machine's clock on a real GPU. On the simulated GPU by its own clock, on which the driver's calls have
  // declared costs.
  double MicrosPerPair(const std::function<void()>& pair) {
    for (int i = 0; i < 100; ++i) pair();
    if (simulated()) {
      const absl::Duration began = runtime().Now();
      for (int i = 0; i < kPairs; ++i) pair();
      return absl::ToDoubleMicroseconds(runtime().Now() - began) / kPairs;
    }
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < kPairs; ++i) pair();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began)
               .count() /
           kPairs;
  }
};

TEST_F(PoolSpeed, SuballocatingIsATenthOfTheDriversOwn) {
  constexpr uint64_t kSize = 1 << 20;
  Player& player = Add("a", "memory=1GiB");
  const absl::StatusOr<Allocator> pool =
      Allocator::Create(player.device, {.strategy = AllocationStrategy::kSuballocating});
  ASSERT_TRUE(pool.ok()) << pool.status();
  auto* const take = runtime().Symbol<int(uint64_t*, size_t)>("cuMemAlloc_v2");
  auto* const give = runtime().Symbol<int(uint64_t)>("cuMemFree_v2");
  auto* const take_later =
      runtime().Symbol<int(uint64_t*, size_t, CUstream_st*)>("cuMemAllocAsync");
  auto* const give_later = runtime().Symbol<int(uint64_t, CUstream_st*)>("cuMemFreeAsync");
  ASSERT_TRUE(take != nullptr && give != nullptr && take_later != nullptr && give_later != nullptr);
  const absl::StatusOr<CUstream_st*> stream = player.stream.native();
  ASSERT_TRUE(stream.ok()) << stream.status();

  double direct = 0, driver_pool = 0, suballocating = 0;
  OnClock([&] {
    uint64_t pointer = 0;
    // One allocation of each stays, so that neither pool gives everything back to the device.
    uint64_t kept = 0;
    ASSERT_EQ(take_later(&kept, kSize, *stream), 0);
    const absl::StatusOr<DevicePtr> held = pool->AllocateRaw(Bytes(kSize));
    ASSERT_TRUE(held.ok()) << held.status();
    direct = MicrosPerPair([&] {
      ASSERT_EQ(take(&pointer, kSize), 0);
      ASSERT_EQ(give(pointer), 0);
    });
    driver_pool = MicrosPerPair([&] {
      ASSERT_EQ(take_later(&pointer, kSize, *stream), 0);
      ASSERT_EQ(give_later(pointer, *stream), 0);
    });
    suballocating = MicrosPerPair([&] {
      const absl::StatusOr<DevicePtr> got = pool->AllocateRaw(Bytes(kSize));
      ASSERT_TRUE(got.ok());
      ASSERT_TRUE(pool->Free(*got).ok());
    });
    GPUSHARE_GPU_TEST_OK(pool->Free(*held));
    EXPECT_EQ(give_later(kept, *stream), 0);
  });
  std::cout << "1 MiB and back: cuMemAlloc " << direct << " us, cuMemAllocAsync " << driver_pool
            << " us, suballocating pool " << suballocating << " us\n";
  RecordProperty("cuMemAlloc_us", std::to_string(direct));
  RecordProperty("cuMemAllocAsync_us", std::to_string(driver_pool));
  RecordProperty("suballocating_us", std::to_string(suballocating));
  EXPECT_LE(10 * suballocating, direct);
  EXPECT_LT(suballocating, driver_pool);
}

}  // namespace
}  // namespace gpushare::gpu_test
