// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "gate/tenant_page.h"

namespace gpushare::gate {
namespace {

TEST(TenantPage, SpendsNoMoreThanThereIs) {
  TenantPage page;
  page.Add(100);
  uint32_t launch = 99;
  EXPECT_TRUE(page.Spend(60, &launch));
  EXPECT_EQ(launch, 0u);
  EXPECT_FALSE(page.Spend(60, &launch));
  EXPECT_TRUE(page.Spend(40, &launch));
  EXPECT_EQ(launch, 1u);
  EXPECT_EQ(page.TakeAll(), 0u);
}

TEST(TenantPage, TakingCreditKeepsTheCountOfLaunches) {
  TenantPage page;
  page.Add(100);
  uint32_t launch = 0;
  ASSERT_TRUE(page.Spend(10, &launch));
  EXPECT_EQ(page.TakeAll(), 90u);
  page.Add(50);
  ASSERT_TRUE(page.Spend(50, &launch));
  EXPECT_EQ(launch, 1u);
}

TEST(TenantPage, CreditIsConservedAmongThreads) {
  auto page = std::make_unique<TenantPage>();
  constexpr int kThreads = 4;
  constexpr uint64_t kTotal = 200'000;
  page->Add(kTotal);
  std::vector<uint64_t> spent(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      uint32_t launch;
      while (page->Spend(static_cast<uint64_t>(i + 1), &launch)) {
        spent[static_cast<size_t>(i)] += static_cast<uint64_t>(i + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t sum = page->TakeAll();
  for (uint64_t s : spent) sum += s;
  EXPECT_EQ(sum, kTotal);
}

TEST(LaunchRecord, RoundTrips) {
  for (uint32_t launch : {0u, 1u, TenantPage::kLaunchMask}) {
    for (uint32_t entry : {0u, 8191u, LaunchRecord::kNoEntry}) {
      for (bool unknown : {false, true}) {
        const LaunchRecord got = LaunchRecord::Unpack(LaunchRecord{.launch = launch,
                                                                   .stream = 0xfffe,
                                                                   .entry = entry,
                                                                   .unknown = unknown,
                                                                   .graph = !unknown}
                                                          .Pack());
        EXPECT_EQ(got.launch, launch);
        EXPECT_EQ(got.stream, 0xfffeu);
        EXPECT_EQ(got.entry, entry);
        EXPECT_EQ(got.unknown, unknown);
        EXPECT_EQ(got.graph, !unknown);
      }
    }
  }
}

}  // namespace
}  // namespace gpushare::gate
