// SPDX-License-Identifier: Apache-2.0
// Batches of prefetches and discards of managed memory.
#include <array>
#include <utility>

#include "tests/sim/sim_test.h"

// Not all headers declare these.
extern "C" {
CUresult CUDAAPI cuMemPrefetchBatchAsync(CUdeviceptr*, size_t*, size_t, CUmemLocation*, size_t*,
                                         size_t, unsigned long long, CUstream);
CUresult CUDAAPI cuMemPrefetchBatchAsync_ptsz(CUdeviceptr*, size_t*, size_t, CUmemLocation*,
                                              size_t*, size_t, unsigned long long, CUstream);
CUresult CUDAAPI cuMemDiscardBatchAsync(CUdeviceptr*, size_t*, size_t, unsigned long long,
                                        CUstream);
CUresult CUDAAPI cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr*, size_t*, size_t, CUmemLocation*,
                                                   size_t*, size_t, unsigned long long, CUstream);
}

namespace gpushare::sim_test {
namespace {

constexpr size_t kPage = 4096, kSize = 10'000'000;

class PrefetchBatchTest : public SimTest {
 protected:
  // A copy of 10 MB takes 1 ms to the device and 0.5 ms back.
  void SetUp() override {
    Start(std::string(kPlain) + ",h2d=10GB/s,d2h=20GB/s,d2d=100GB/s");
    stream_ = NewStream();
    for (CUdeviceptr& pointer : pointers_) {
      ASSERT_CU(cuMemAllocManaged(&pointer, kSize, CU_MEM_ATTACH_GLOBAL));
    }
  }
  CUresult Prefetch() {
    return cuMemPrefetchBatchAsync(pointers_.data(), sizes_.data(), 3, places_.data(),
                                   begins_.data(), places_count_, 0, stream_);
  }
  // Prefetches all of it to the host, in one batch.
  void ToHost() {
    std::array<CUmemLocation, 1> host{{{CU_MEM_LOCATION_TYPE_HOST, {0}}}};
    size_t begin = 0;
    ASSERT_CU(cuMemPrefetchBatchAsync(pointers_.data(), sizes_.data(), 3, host.data(), &begin, 1, 0,
                                      stream_));
    ASSERT_CU(cuStreamSynchronize(stream_));
  }
  uint64_t Takes() {
    const uint64_t start = Now();
    EXPECT_CU(cuStreamSynchronize(stream_));
    return Now() - start;
  }

  CUstream stream_ = nullptr;
  std::array<CUdeviceptr, 3> pointers_{};
  std::array<size_t, 3> sizes_{kSize, kSize, kSize};
  // The first and second ranges stay on the device, and the third goes to the host.
  std::array<CUmemLocation, 2> places_{
      {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, {CU_MEM_LOCATION_TYPE_HOST, {0}}}};
  std::array<size_t, 2> begins_{0, 2};
  size_t places_count_ = 2;
};

TEST_F(PrefetchBatchTest, EachGoesToItsPlaceInTheTimeOfItsBytes) {
  ASSERT_CU(Prefetch());
  EXPECT_EQ(Takes(), 500'000u);
  EXPECT_EQ(Charged(), 2 * kSize);
  ToHost();
  EXPECT_EQ(Charged(), 0u);
  ASSERT_CU(Prefetch());
  EXPECT_EQ(Takes(), 2'000'000u);
  EXPECT_EQ(Charged(), 2 * kSize);
  EXPECT_EQ(Truth(0).d2h_bytes, 3 * kSize);
  EXPECT_EQ(Truth(0).h2d_bytes, 2 * kSize);
}

TEST_F(PrefetchBatchTest, WhatIsDiscardedMovesWithoutItsBytes) {
  ToHost();
  const uint64_t moved = Truth(0).d2h_bytes;
  sizes_[1] = kPage;
  ASSERT_CU(cuMemDiscardBatchAsync(pointers_.data(), sizes_.data(), 2, 0, stream_));
  EXPECT_EQ(Takes(), 0u);
  EXPECT_EQ(Charged(), 0u);  // unchanged
  sizes_[1] = kSize;
  places_count_ = 1;
  ASSERT_CU(Prefetch());
  EXPECT_EQ(Takes(), (2 * kSize - kPage) / 10);
  EXPECT_EQ(Charged(), 3 * kSize);
  EXPECT_EQ(Truth(0).h2d_bytes, 2 * kSize - kPage);
  // A prefetch ends the discarded state.
  ToHost();
  EXPECT_EQ(Truth(0).d2h_bytes, moved + 3 * kSize);
}

TEST_F(PrefetchBatchTest, BothInOneMoveNothing) {
  ToHost();
  ASSERT_CU(cuMemDiscardAndPrefetchBatchAsync(pointers_.data(), sizes_.data(), 3, places_.data(),
                                              begins_.data(), 2, 0, stream_));
  EXPECT_EQ(Takes(), 0u);
  EXPECT_EQ(Charged(), 2 * kSize);
  EXPECT_EQ(Truth(0).h2d_bytes, 0u);
}

TEST_F(PrefetchBatchTest, ItKeepsTheOrderOfItsStream) {
  ASSERT_CU(Spin(stream_, 1'000'000, 1));
  ASSERT_CU(Prefetch());
  ASSERT_CU(cuMemDiscardBatchAsync(pointers_.data(), sizes_.data(), 1, 0, stream_));
  EXPECT_EQ(Takes(), 1'500'000u);
}

TEST_F(PrefetchBatchTest, WhatIsRefusedDoesNothing) {
  const auto refused = [&](CUresult code) {
    EXPECT_EQ(Prefetch(), code);
    EXPECT_EQ(cuMemDiscardAndPrefetchBatchAsync(pointers_.data(), sizes_.data(), 3, places_.data(),
                                                begins_.data(), places_count_, 0, stream_),
              code);
    EXPECT_EQ(Takes(), 0u);
    EXPECT_EQ(Charged(), 3 * kSize);
  };
  begins_ = {1, 2};
  refused(CUDA_ERROR_INVALID_VALUE);
  begins_ = {0, 0};
  refused(CUDA_ERROR_INVALID_VALUE);
  begins_ = {0, 3};
  refused(CUDA_ERROR_INVALID_VALUE);
  begins_ = {0, 2};
  places_count_ = 0;
  refused(CUDA_ERROR_INVALID_VALUE);
  places_count_ = 4;
  refused(CUDA_ERROR_INVALID_VALUE);
  places_count_ = 2;
  places_[0] = {CU_MEM_LOCATION_TYPE_DEVICE, {7}};
  refused(CUDA_ERROR_INVALID_DEVICE);
  places_[0] = {CU_MEM_LOCATION_TYPE_HOST, {0}};
  // The last range is invalid, so the first one does not move either.
  for (const size_t bytes : {size_t{0}, kSize + 1, size_t{1} << 63}) {
    sizes_[2] = bytes;
    refused(CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemDiscardBatchAsync(pointers_.data(), sizes_.data(), 3, 0, stream_),
              CUDA_ERROR_INVALID_VALUE);
  }
  sizes_[2] = kSize;
  CUdeviceptr plain = 1;  // not managed
  std::swap(pointers_[2], plain);
  refused(CUDA_ERROR_INVALID_VALUE);
  std::swap(pointers_[2], plain);
  EXPECT_EQ(cuMemDiscardBatchAsync(nullptr, sizes_.data(), 3, 0, stream_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemDiscardBatchAsync(pointers_.data(), sizes_.data(), 0, 0, stream_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemDiscardBatchAsync(pointers_.data(), sizes_.data(), 3, 1, stream_),
            CUDA_ERROR_INVALID_VALUE);
  // The legacy stream is rejected; the per-thread stream is accepted like any other.
  EXPECT_EQ(cuMemPrefetchBatchAsync(pointers_.data(), sizes_.data(), 3, places_.data(),
                                    begins_.data(), 2, 0, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPrefetchBatchAsync(pointers_.data(), sizes_.data(), 3, places_.data(),
                                    begins_.data(), 2, 0, CU_STREAM_LEGACY),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Charged(), 3 * kSize);
  EXPECT_CU(cuMemPrefetchBatchAsync_ptsz(pointers_.data(), sizes_.data(), 3, places_.data(),
                                         begins_.data(), 2, 0, nullptr));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Charged(), 0u);
  ASSERT_CU(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(Prefetch(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

}  // namespace
}  // namespace gpushare::sim_test
