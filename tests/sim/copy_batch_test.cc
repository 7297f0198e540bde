// SPDX-License-Identifier: Apache-2.0
// Batches of copies.
#include <array>
#include <cstring>
#include <numeric>

#include "tests/sim/sim_test.h"

#if CUDA_VERSION >= 13000  // older headers lack the types or have their older form

extern "C" CUresult CUDAAPI cuMemcpyBatchAsync_v1_form(CUdeviceptr*, CUdeviceptr*, size_t*, size_t,
                                                       CUmemcpyAttributes*, size_t*, size_t,
                                                       size_t*,
                                                       CUstream) __asm__("cuMemcpyBatchAsync");

namespace gpushare::sim_test {
namespace {

class CopyBatchTest : public SimTest {
 protected:
  void SetUp() override {
    Start(std::string(kPlain) + ",h2d=10GB/s,d2h=10GB/s,d2d=100GB/s");
    std::iota(host_.begin(), host_.end(), static_cast<unsigned char>(1));
    ASSERT_CU(cuMemAlloc(&device_memory_, host_.size()));
    ASSERT_CU(cuMemsetD8(device_memory_, 0, host_.size()));
    stream_ = NewStream();
  }
  static CUmemcpyAttributes Order(CUmemcpySrcAccessOrder order) {
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = order;
    return attributes;
  }
  CUdeviceptr Host(size_t offset) const {
    return reinterpret_cast<CUdeviceptr>(host_.data() + offset);
  }
  std::array<unsigned char, 64> Back() const {
    std::array<unsigned char, 64> bytes;
    EXPECT_CU(cuMemcpyDtoH(bytes.data(), device_memory_, bytes.size()));
    return bytes;
  }

  std::array<unsigned char, 64> host_;
  CUdeviceptr device_memory_ = 0;
  CUstream stream_ = nullptr;
};

TEST_F(CopyBatchTest, EveryCopyIsMadeInTheOrderOfTheStream) {
  CUdeviceptr to[] = {device_memory_ + 8, device_memory_ + 40, device_memory_};
  CUdeviceptr from[] = {Host(0), Host(20), Host(60)};
  size_t sizes[] = {16, 8, 4}, begins[] = {0, 2};
  CUmemcpyAttributes kinds[] = {Order(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
                                Order(CU_MEMCPY_SRC_ACCESS_ORDER_ANY)};
  const uint64_t start = Now();
  ASSERT_CU(Spin(stream_, 10'000, 1));
  ASSERT_CU(cuMemcpyBatchAsync(to, from, sizes, 3, kinds, begins, 2, stream_));
  EXPECT_EQ(Now(), start);
  EXPECT_GE(DoneAt(stream_, start), 10'000u);
  std::array<unsigned char, 64> expected{};
  std::memcpy(&expected[8], &host_[0], 16);
  std::memcpy(&expected[40], &host_[20], 8);
  std::memcpy(&expected[0], &host_[60], 4);
  EXPECT_EQ(Back(), expected);
}

TEST_F(CopyBatchTest, ASourceOfTheCallIsReadWithinIt) {
  void* pinned = nullptr;
  ASSERT_CU(cuMemAllocHost(&pinned, 16));
  std::memset(pinned, 5, 16);
  CUdeviceptr to = device_memory_, from = reinterpret_cast<CUdeviceptr>(pinned);
  size_t size = 16, begin = 0;
  CUmemcpyAttributes kind = Order(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
  ASSERT_CU(Spin(stream_, 10'000, 1));
  ASSERT_CU(cuMemcpyBatchAsync(&to, &from, &size, 1, &kind, &begin, 1, stream_));
  std::memset(pinned, 9, 16);
  EXPECT_EQ(Back()[15], 5);
  // In stream order the source is read when the stream reaches the copy.
  kind = Order(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
  ASSERT_CU(Spin(stream_, 10'000, 1));
  ASSERT_CU(cuMemcpyBatchAsync(&to, &from, &size, 1, &kind, &begin, 1, stream_));
  std::memset(pinned, 7, 16);
  ASSERT_CU(cuStreamSynchronize(stream_));
  EXPECT_EQ(Back()[15], 7);
}

TEST_F(CopyBatchTest, WhatIsRefusedCopiesNothing) {
  CUdeviceptr to[] = {device_memory_, device_memory_ + 60}, from[] = {Host(0), Host(0)};
  size_t sizes[] = {4, 8}, begins[] = {0, 1}, failed = 0;  // the second one exceeds its memory
  CUmemcpyAttributes kinds[] = {Order(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
                                Order(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)};
  EXPECT_EQ(cuMemcpyBatchAsync_v1_form(to, from, sizes, 2, kinds, begins, 1, &failed, stream_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(failed, 1u);
  sizes[1] = 4;
  const auto refused = [&](size_t count, size_t kind_count, CUstream stream) {
    failed = 0;
    EXPECT_EQ(cuMemcpyBatchAsync_v1_form(to, from, sizes, count, kinds, begins, kind_count, &failed,
                                         stream),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(failed, SIZE_MAX);
  };
  refused(0, 1, stream_);
  refused(2, 0, stream_);
  refused(1, 2, stream_);
  refused(2, 1, nullptr);  // the legacy stream
  begins[1] = 2;
  refused(2, 2, stream_);
  kinds[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  refused(2, 1, stream_);
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Back(), (std::array<unsigned char, 64>{}));
}

TEST_F(CopyBatchTest, BoxesBetweenMemoryAndArraysAreInElements) {
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR shape{8, 4, CU_AD_FORMAT_UNSIGNED_INT16, 1};  // rows of 16 bytes
  ASSERT_CU(cuArrayCreate(&array, &shape));
  CUDA_MEMCPY3D_BATCH_OP in{};
  in.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  in.src.op.ptr.ptr = Host(0);
  in.src.op.ptr.rowLength = 8;  // 3 of these are copied
  in.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  in.dst.op.array.array = array;
  in.dst.op.array.offset = {2, 1, 0};
  in.extent = {3, 2, 1};
  in.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  CUDA_MEMCPY3D_BATCH_OP out{};
  out.src = in.dst;
  out.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  out.dst.op.ptr.ptr = device_memory_;  // packed
  out.extent = in.extent;
  out.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  ASSERT_CU(cuMemcpy3DBatchAsync(1, &in, 0, stream_));
  ASSERT_CU(cuMemcpy3DBatchAsync(1, &out, 0, stream_));
  ASSERT_CU(cuStreamSynchronize(stream_));
  std::array<unsigned char, 64> expected{};
  std::memcpy(&expected[0], &host_[0], 6);
  std::memcpy(&expected[6], &host_[16], 6);
  EXPECT_EQ(Back(), expected);
  in.src.op.ptr.rowLength = 2;
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &in, 0, stream_), CUDA_ERROR_INVALID_VALUE);
  in.src.op.ptr.rowLength = 0;
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &in, 1, stream_), CUDA_ERROR_INVALID_VALUE);
  in.extent.depth = 0;
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &in, 0, stream_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(CopyBatchTest, ABatchIsCaptured) {
  CUdeviceptr to[] = {device_memory_, device_memory_ + 4}, from[] = {Host(0), Host(4)};
  size_t sizes[] = {4, 4}, begin = 0, nodes = 0;
  CUmemcpyAttributes kind = Order(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuMemcpyBatchAsync(to, from, sizes, 2, &kind, &begin, 1, stream_));
  ASSERT_CU(cuStreamEndCapture(stream_, &graph));
  ASSERT_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2u);
  EXPECT_EQ(Back()[0], 0);
  ASSERT_CU(cuGraphLaunch(Make(graph), stream_));
  ASSERT_CU(cuStreamSynchronize(stream_));
  EXPECT_EQ(Back()[7], 8);
}

}  // namespace
}  // namespace gpushare::sim_test

#endif
