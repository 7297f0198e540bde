// SPDX-License-Identifier: Apache-2.0
// Copies and sets: real bytes, bandwidth, which calls block and which do not.
#include <cstring>
#include <numeric>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class CopyTest : public SimTest {
 protected:
  void SetUp() override { Start(std::string(kPlain) + ",h2d=10GB/s,d2h=20GB/s,d2d=100GB/s"); }
  CUdeviceptr Allocate(size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(cuMemAlloc(&pointer, bytes));
    return pointer;
  }
  char* Pinned(size_t bytes) {
    void* pointer = nullptr;
    EXPECT_CU(cuMemAllocHost(&pointer, bytes));
    return static_cast<char*>(pointer);
  }
};

TEST_F(CopyTest, BytesGoThereAndBack) {
  std::vector<unsigned char> out(3 * kMiB + 17), in(out.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<unsigned char>(i * 7 + i / 251);
  const CUdeviceptr a = Allocate(out.size() + 100), b = Allocate(out.size());
  ASSERT_CU(cuMemcpyHtoD(a + 100, out.data(), out.size()));
  ASSERT_CU(cuMemcpyDtoD(b, a + 100, out.size()));
  ASSERT_CU(cuMemcpyDtoH(in.data(), b, in.size()));
  EXPECT_EQ(in, out);
  ASSERT_CU(cuMemcpy(b, reinterpret_cast<CUdeviceptr>(out.data() + 5), 1000));
  ASSERT_CU(cuMemcpy(reinterpret_cast<CUdeviceptr>(in.data()), b, 1000));
  EXPECT_EQ(0, std::memcmp(in.data(), out.data() + 5, 1000));
}

TEST_F(CopyTest, ACopyTakesItsBytesOverItsBandwidth) {
  char* const host = Pinned(kMiB * 10);
  const CUdeviceptr a = Allocate(10'000'000), b = Allocate(10'000'000);
  uint64_t start = Now();
  ASSERT_CU(cuMemcpyHtoD(a, host, 10'000'000));
  EXPECT_EQ(Now() - start, 1'000'000u);
  start = Now();
  ASSERT_CU(cuMemcpyDtoH(host, a, 10'000'000));
  EXPECT_EQ(Now() - start, 500'000u);
  start = Now();
  ASSERT_CU(cuMemcpyDtoD(b, a, 10'000'000));
  EXPECT_EQ(Now(), start);  // does not block
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(Now() - start, 100'000u);
}

TEST_F(CopyTest, EachDirectionIsOneEngine) {
  char* const host = Pinned(20'000'000);
  const CUdeviceptr a = Allocate(10'000'000), b = Allocate(10'000'000);
  const CUstream s = NewStream(), t = NewStream(), u = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuMemcpyHtoDAsync(a, host, 10'000'000, s));
  ASSERT_CU(cuMemcpyHtoDAsync(b, host, 10'000'000, t));               // after the first copy
  ASSERT_CU(cuMemcpyDtoHAsync(host + 10'000'000, a, 10'000'000, u));  // concurrently with both
  ASSERT_CU(Spin(u, 1'000, 100));
  EXPECT_EQ(Now(), start);
  EXPECT_EQ(DoneAt(u, start), 501'000u);
  EXPECT_EQ(DoneAt(s, start), 1'000'000u);
  EXPECT_EQ(DoneAt(t, start), 2'000'000u);
}

TEST_F(CopyTest, BytesAreCountedByDirectionAndAccount) {
  char* const host = Pinned(4096);
  const CUdeviceptr a = Allocate(8192);
  const CUstream s = NewStream();
  ASSERT_EQ(0, gpushare_sim_set_account(s, 3));
  ASSERT_CU(cuMemcpyHtoDAsync(a, host, 1000, s));
  ASSERT_CU(cuMemcpyDtoHAsync(host, a, 500, s));
  ASSERT_CU(cuMemcpyDtoDAsync(a + 4096, a, 200, s));
  EXPECT_EQ(Truth(3).queued, 3u);
  ASSERT_CU(cuStreamSynchronize(s));
  EXPECT_EQ(Truth(3).queued, 0u);
  EXPECT_EQ(Truth(3).h2d_bytes, 1000u);
  EXPECT_EQ(Truth(3).d2h_bytes, 500u);
  EXPECT_EQ(Truth(3).d2d_bytes, 200u);
}

TEST_F(CopyTest, AsyncCopiesHappenAtTheirTime) {
  char* const host = Pinned(1000);
  const CUdeviceptr a = Allocate(1000);
  const CUstream s = NewStream();
  ASSERT_CU(Spin(s, 10'000, 1));
  host[0] = 1;
  ASSERT_CU(cuMemcpyHtoDAsync(a, host, 1000, s));
  host[0] = 2;  // page-locked: the copy reads it when it runs
  ASSERT_CU(cuStreamSynchronize(s));
  host[0] = 3;
  ASSERT_CU(cuMemcpyDtoH(host, a, 1000));
  EXPECT_EQ(host[0], 2);
}

TEST_F(CopyTest, SmallPageableSourcesAreStagedAndLargeOnesBlock) {
  std::vector<char> host(10'000'000, 1), back(1);
  const CUdeviceptr a = Allocate(host.size());
  const CUstream s = NewStream();
  ASSERT_CU(Spin(s, 10'000, 1));
  uint64_t start = Now();
  ASSERT_CU(cuMemcpyHtoDAsync(a, host.data(), 1000, s));
  EXPECT_EQ(Now(), start);
  host[0] = 2;                                         // the driver has already copied it
  ASSERT_CU(cuMemcpyDtoHAsync(back.data(), a, 1, s));  // to pageable memory: blocks
  EXPECT_GE(Now() - start, 10'000u);
  EXPECT_EQ(back[0], 1);
  start = Now();
  ASSERT_CU(cuMemcpyHtoDAsync(a, host.data(), host.size(), s));
  EXPECT_EQ(Now() - start, 1'000'000u);
}

TEST_F(CopyTest, SetsFillElements) {
  const CUdeviceptr a = Allocate(4096);
  std::vector<unsigned char> bytes(64);
  ASSERT_CU(cuMemsetD8(a, 0xab, 64));
  ASSERT_CU(cuMemcpyDtoH(bytes.data(), a, 64));
  EXPECT_EQ(bytes, std::vector<unsigned char>(64, 0xab));
  ASSERT_CU(cuMemsetD32(a, 0x01020304, 16));
  ASSERT_CU(cuMemsetD16(a + 4, 0x0506, 1));
  ASSERT_CU(cuMemcpyDtoH(bytes.data(), a, 64));
  EXPECT_EQ((std::vector<unsigned char>(bytes.begin(), bytes.begin() + 8)),
            (std::vector<unsigned char>{4, 3, 2, 1, 6, 5, 2, 1}));
  ASSERT_CU(cuMemsetD8(a, 0, 4096));
  ASSERT_CU(cuMemsetD2D8Async(a, 16, 9, 4, 4, nullptr));
  ASSERT_CU(cuMemcpyDtoH(bytes.data(), a, 64));
  EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), 0), 9 * 16);
  EXPECT_EQ(bytes[16 + 3], 9);
  EXPECT_EQ(bytes[16 + 4], 0);
}

TEST_F(CopyTest, RowsAreCopiedByPitch) {
  std::vector<unsigned char> source(100);
  std::iota(source.begin(), source.end(), static_cast<unsigned char>(0));
  const CUdeviceptr a = Allocate(4096);
  ASSERT_CU(cuMemsetD8(a, 0, 4096));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source.data();
  copy.srcPitch = 10;
  copy.srcXInBytes = 2;
  copy.srcY = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = a;
  copy.dstPitch = 512;
  copy.WidthInBytes = 4;
  copy.Height = 3;
  ASSERT_CU(cuMemcpy2D(&copy));
  unsigned char row[8];
  ASSERT_CU(cuMemcpyDtoH(row, a + 2 * 512, 8));
  EXPECT_EQ(row[0], 32);
  EXPECT_EQ(row[3], 35);
  EXPECT_EQ(row[4], 0);
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(CopyTest, RangesAreChecked) {
  char host[100];
  const CUdeviceptr a = Allocate(100), freed = Allocate(100);
  ASSERT_CU(cuMemFree(freed));
  EXPECT_EQ(cuMemcpyHtoD(a, host, 101), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(a + 1, host, 100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(freed, host, 100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(a, nullptr, 100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(0, host, 100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(nullptr, a, 100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(host, reinterpret_cast<CUdeviceptr>(host), 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(a, 0, 101), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32(a + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32(a, 0, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(reinterpret_cast<CUdeviceptr>(host), 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemcpyHtoD(a, host, 0));
  EXPECT_EQ(Truth(0).queued, 0u);
}

TEST_F(CopyTest, ACopyToMemoryFreedByAnotherContextTouchesNothing) {
  char* const host = Pinned(1000);
  CUcontext other;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  const CUdeviceptr a = Allocate(1000);
  ASSERT_CU(cuCtxSetCurrent(context_));
  const CUstream s = NewStream();
  ASSERT_CU(Spin(s, 10'000, 1));
  ASSERT_CU(cuMemcpyHtoDAsync(a, host, 1000, s));
  ASSERT_CU(cuMemFree(a));  // waits only for its own context
  EXPECT_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
  ASSERT_CU(cuStreamSynchronize(s));
  ASSERT_CU(cuCtxDestroy(other));
}

}  // namespace
}  // namespace gpushare::sim_test
