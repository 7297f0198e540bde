// SPDX-License-Identifier: Apache-2.0
// Several threads make one pool grow at the quota, each on its own stream. By the driver's own count the quota holds.
// GPUSHARE_PROPERTY_CASES=N sets the number of rounds; GPUSHARE_PROPERTY_SEED=S selects other ones.
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/contract/books_bed.h"

namespace gpushare::books {
namespace {

unsigned Setting(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? static_cast<unsigned>(std::atoi(text)) : otherwise;
}

class BooksThreads : public BooksTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  static constexpr unsigned kThreads = 4, kSteps = 150;
  BooksThreads() : BooksTest("wall", 1, GetParam()) {}

  uint64_t limit() const { return 4 * GetParam(); }

  void Act(unsigned seed, CUstream stream) {
    std::mt19937 random(seed);
    EXPECT_CU(cu_->CtxPushCurrent(context_));
    std::vector<CUdeviceptr> held;
    for (unsigned i = 0; i < kSteps; ++i) {
      if (random() % 3 != 0) {
        CUdeviceptr pointer = 0;
        const uint64_t bytes = 1 + random() % (GetParam() * 5 / 4);
        const Answer answer = books_->MemAllocAsync(payer(), &pointer, bytes, stream);
        EXPECT_TRUE(answer.ok() || answer.at_quota);
        if (answer.ok()) held.push_back(pointer);
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        EXPECT_CU(books_->MemFreeAsync(held.back(), stream));
        held.pop_back();
      }
      // The excess is bounded, since only one call at a time can find that the idle memory is of no use to it.
      EXPECT_LE(Used(), limit() + 2 * GetParam());
    }
    for (const CUdeviceptr pointer : held) EXPECT_CU(books_->MemFreeAsync(pointer, stream));
    CUcontext popped;
    EXPECT_CU(cu_->CtxPopCurrent(&popped));
  }
};

TEST_P(BooksThreads, TheDriverNeverKeepsMoreThanTheQuota) {
  account_->SetLimit(limit());
  CUmemoryPool pool = nullptr;
  uint64_t keep = UINT64_MAX;
  ASSERT_CU(cu_->DeviceGetDefaultMemPool(&pool, 0));
  ASSERT_CU(cu_->MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUstream streams[kThreads];
  for (CUstream& stream : streams) {
    ASSERT_CU(cu_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  }
  // The books find out once by which units the pool grows.
  CUdeviceptr first = 0;
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &first, 1, stream_).ok());
  EXPECT_CU(books_->MemFreeAsync(first, stream_));
  const unsigned rounds = Setting("GPUSHARE_PROPERTY_CASES", 30);
  const unsigned seed = Setting("GPUSHARE_PROPERTY_SEED", 0) * rounds;
  for (unsigned round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { Act((seed + round) * kThreads + i, streams[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(Used(), limit());
    EXPECT_FALSE(account_->IsOverdrawn());
    for (CUstream stream : streams) EXPECT_CU(cu_->StreamSynchronize(stream));
    ExpectExact();
  }
  EXPECT_LE(account_->Usage().peak, limit());  // no tenant owed anything at any time
  EXPECT_CU(books_->MemPoolTrimTo(pool, 0));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Granules, BooksThreads, ::testing::Values(2 * kMiB, 32 * kMiB),
                         [](const auto& granule) {
                           return std::to_string(granule.param / kMiB) + "MiB";
                         });

}  // namespace
}  // namespace gpushare::books
