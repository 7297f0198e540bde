// SPDX-License-Identifier: Apache-2.0
// Batches of boxes, prefetches and decompressions through the layer `work`. Calls that the simulated driver does not
// support are answered here: the tests check what the layer holds and charges.
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/contract/work_bed.h"
#include "work/batches.h"

namespace gpushare::work {
namespace {

constexpr size_t kBytes = 64 << 10;

// The simulated driver does not support decompression: here the call only returns success.
class BatchTest : public WorkTest {
 protected:
  void SetUp() override {
    WorkTest::SetUp();
    table_ = const_cast<driver::Table*>(cu_);
    before_ = *table_;
    answer = CUDA_SUCCESS;
    called = 0;
    table_->MemBatchDecompressAsync = [](auto...) { return ++called, answer; };
    ASSERT_CU(cu_->MemAlloc(&a_, 1 << 20));
    ASSERT_CU(cu_->MemAlloc(&b_, 1 << 20));
    host_.resize(1 << 20);
  }
  void TearDown() override {
    if (table_ != nullptr) *table_ = before_;
    WorkTest::TearDown();
  }

  static inline CUresult answer = CUDA_SUCCESS;
  static inline int called = 0;
  static inline std::function<CUresult()> nested;
  driver::Table* table_ = nullptr;
  driver::Table before_;
  CUdeviceptr a_ = 0, b_ = 0;
  std::vector<char> host_;
};

TEST_F(BatchTest, ABatchOfBoxesIsChargedByWhereTheirEndsAre) {
  const Tenant& t = Weighing(1);
  const auto host = reinterpret_cast<CUdeviceptr>(host_.data());
  const auto box = [](CUdeviceptr to, CUdeviceptr from) {
    BatchBox one{};
    one.to.type = one.from.type = BatchOperand::kPointer;
    one.to.pointer = {to, 0, 0, {}};
    one.from.pointer = {from, 0, 0, {}};
    one.width = 4096;
    one.height = one.depth = 4;
    one.order = 1;  // the order of the stream
    return one;
  };
  // One box to the device, two from it, three within it.
  std::vector<BatchBox> boxes = {
      box(a_, host),        box(host, a_), box(host, b_),           box(b_, a_),
      box(b_ + kBytes, a_), box(a_, b_),   box(host, host + kBytes)};
  for (const bool old : {false, true}) {
    const gate::GateStats stats = t.gate->stats();
    const gpushare_sim_truth truth = Truth(t.account);
    size_t failed = 0;
    ASSERT_CU(old ? calls_->Memcpy3DBatchAsyncV1(t.payer(), boxes.size(), boxes.data(), &failed, 0,
                                                 t.stream)
                  : calls_->Memcpy3DBatchAsync(t.payer(), boxes.size(), boxes.data(), 0, t.stream));
    ASSERT_CU(cu_->CtxSynchronize());
    const gate::GateStats now = t.gate->stats();
    const gpushare_sim_truth after = Truth(t.account);
    EXPECT_EQ(now.launches - stats.launches, 1u);
    EXPECT_EQ(now.copy_bytes[0] - stats.copy_bytes[0], kBytes);
    EXPECT_EQ(now.copy_bytes[1] - stats.copy_bytes[1], 2 * kBytes);
    EXPECT_EQ(after.h2d_bytes - truth.h2d_bytes, kBytes);
    EXPECT_EQ(after.d2h_bytes - truth.d2h_bytes, 2 * kBytes);
    EXPECT_EQ(after.d2d_bytes - truth.d2d_bytes, 3 * kBytes);
  }
  // A batch that the driver refuses costs nothing.
  const gate::GateStats stats = t.gate->stats();
  boxes[0].order = 99;
  EXPECT_EQ(calls_->Memcpy3DBatchAsync(t.payer(), boxes.size(), boxes.data(), 0, t.stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(t.gate->stats().copy_bytes, stats.copy_bytes);
  EXPECT_EQ(t.gate->stats().launches, stats.launches);
}

TEST_F(BatchTest, ABatchOfPrefetchesIsChargedByWhereEachGoes) {
  const Tenant& t = Add({.limits = {}, .h2d_bytes_per_s = 1e9});
  constexpr size_t kLast = 20'000'000;
  CUdeviceptr managed = 0;
  ASSERT_CU(cu_->MemAllocManaged(&managed, kLast + (1 << 20), CU_MEM_ATTACH_GLOBAL));
  CUdeviceptr pointers[] = {managed, managed + kBytes, managed + 2 * kBytes, managed + (1 << 20)};
  size_t sizes[] = {1000, 200, 30, 4};
  CUmemLocation to[2] = {};
  to[0].type = CU_MEM_LOCATION_TYPE_HOST;
  to[1].type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t first_of[] = {0, 3};  // the last range goes to the device, the others to the host
  const auto prefetch = [&] {
    return calls_->MemPrefetchBatchAsync(t.payer(), pointers, sizes, 4, to, first_of, 2, 0,
                                         t.stream);
  };
  ASSERT_CU(prefetch());
  ASSERT_CU(cu_->CtxSynchronize());
  EXPECT_EQ(t.gate->stats().copy_bytes[0], 4u);
  EXPECT_EQ(t.gate->stats().copy_bytes[1], 1230u);
  EXPECT_EQ(Truth(t.account).d2h_bytes, 3 * size_t{4096});  // whole pages
  // A batch that the driver refuses costs nothing.
  sizes[0] = 0;
  EXPECT_EQ(prefetch(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(t.gate->stats().copy_bytes[0], 4u);
  EXPECT_EQ(t.gate->stats().copy_bytes[1], 1230u);
  // The rate limit of the direction holds: 100 MB at 1 GB/s, minus 10 MB of saved-up credit, and the last batch is a
  // debt.
  sizes[0] = 1000;
  sizes[3] = kLast;
  const Time began = clock().Now();
  for (int i = 0; i < 5; ++i) ASSERT_CU(prefetch());
  EXPECT_NEAR(Ms(clock().Now() - began), 70, 12);
  // A null array is not read.
  EXPECT_EQ(
      calls_->MemPrefetchBatchAsync(t.payer(), pointers, nullptr, 4, to, first_of, 2, 0, t.stream),
      CUDA_ERROR_INVALID_VALUE);
}

TEST_F(BatchTest, ABatchOfDecompressionsIsOneCommand) {
  const Tenant& t = Weighing(1);
  Decompression parts[3] = {};
  for (Decompression& part : parts) part.to_bytes = 1 << 20;
  ASSERT_CU(calls_->MemBatchDecompressAsync(t.payer(), parts, 3, 0, nullptr, t.stream));
  EXPECT_EQ(called, 1);
  EXPECT_EQ(t.gate->stats().launches, 1u);
  answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(calls_->MemBatchDecompressAsync(t.payer(), parts, 3, 0, nullptr, t.stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(t.gate->stats().launches, 1u);
  EXPECT_EQ(t.gate->stats().copy_bytes[0] + t.gate->stats().copy_bytes[1], 0u);
}

// The driver may implement the call by another call that is hooked as well.
TEST_F(BatchTest, WhatTheDriverMakesABatchOfIsNotChargedAgain) {
  const Tenant& t = Weighing(1);
  nested = [&] { return calls_->MemcpyHtoDAsync(t.payer(), a_, host_.data(), kBytes, t.stream); };
  table_->MemcpyBatchAsync = [](auto...) { return nested(); };
  CUdeviceptr to = a_, from = reinterpret_cast<CUdeviceptr>(host_.data());
  size_t bytes = kBytes, kind = 0;
  ASSERT_CU(
      calls_->MemcpyBatchAsync(t.payer(), &to, &from, &bytes, 1, nullptr, &kind, 1, t.stream));
  EXPECT_EQ(t.gate->stats().copy_bytes[0], kBytes);
  nested = nullptr;
}

// A batch that the driver obviously refuses is not read, since its arrays may be too short.
TEST_F(BatchTest, ACountThatIsNonsenseIsTheDriversToRefuse) {
  const Tenant& t = Weighing(1);
  answer = CUDA_ERROR_INVALID_VALUE;
  table_->MemcpyBatchAsync = [](auto...) { return ++called, answer; };
  table_->MemcpyBatchAsyncV1 = [](auto...) { return ++called, answer; };
  table_->Memcpy3DBatchAsync = [](auto...) { return ++called, answer; };
  table_->Memcpy3DBatchAsyncV1 = [](auto...) { return ++called, answer; };
  table_->MemPrefetchBatchAsync = [](auto...) { return ++called, answer; };
  CUdeviceptr to = a_, from = b_;
  size_t bytes = kBytes, of = 0, failed = 0;
  BatchBox box{};
  Decompression part{};
  CUmemLocation location{};
  for (const size_t count : {SIZE_MAX, size_t{1} << 40}) {
    called = 0;
    EXPECT_EQ(
        calls_->MemcpyBatchAsync(t.payer(), &to, &from, &bytes, count, nullptr, &of, 1, t.stream),
        answer);
    EXPECT_EQ(calls_->MemcpyBatchAsyncV1(t.payer(), &to, &from, &bytes, count, nullptr, &of, 1,
                                         &failed, t.stream),
              answer);
    EXPECT_EQ(calls_->Memcpy3DBatchAsync(t.payer(), count, &box, 0, t.stream), answer);
    EXPECT_EQ(calls_->Memcpy3DBatchAsyncV1(t.payer(), count, &box, &failed, 0, t.stream), answer);
    EXPECT_EQ(calls_->MemPrefetchBatchAsync(t.payer(), &to, &bytes, count, &location, &of, 1, 0,
                                            t.stream),
              answer);
    EXPECT_EQ(calls_->MemBatchDecompressAsync(t.payer(), &part, count, 0, nullptr, t.stream),
              answer);
    EXPECT_EQ(called, 6);
  }
  EXPECT_EQ(t.gate->stats().launches, 0u);
  EXPECT_EQ(t.gate->stats().copy_bytes[0] + t.gate->stats().copy_bytes[1], 0u);
}

TEST_F(BatchTest, ALongBatchIsChargedAllTheSame) {
  const Tenant& t = Weighing(1);
  constexpr size_t kCount = 5000;
  std::vector<CUdeviceptr> to(kCount, a_),
      from(kCount, reinterpret_cast<CUdeviceptr>(host_.data()));
  std::vector<size_t> bytes(kCount, 100);
  size_t of = 0;
  table_->MemcpyBatchAsync = [](auto...) { return ++called, answer; };
  ASSERT_CU(calls_->MemcpyBatchAsync(t.payer(), to.data(), from.data(), bytes.data(), kCount,
                                     nullptr, &of, 1, t.stream));
  EXPECT_EQ(called, 1);
  EXPECT_EQ(t.gate->stats().copy_bytes[0], kCount * 100);
}

}  // namespace
}  // namespace gpushare::work
