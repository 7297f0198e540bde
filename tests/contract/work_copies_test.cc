// SPDX-License-Identifier: Apache-2.0
// Copies, sets and prefetches through the layer `work`: each form is charged once, with the bytes that the simulator
// counts; limits and caps hold; a refused call costs nothing.
#include <vector>

#include "tests/contract/work_bed.h"

namespace gpushare::work {
namespace {

constexpr size_t kBytes = 64 << 10;

class CopyTest : public WorkTest {
 protected:
  void SetUp() override {
    WorkTest::SetUp();
    ASSERT_CU(cu_->MemAlloc(&a_, 64 << 20));
    ASSERT_CU(cu_->MemAlloc(&b_, 64 << 20));
    CUDA_ARRAY_DESCRIPTOR line{kBytes, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    ASSERT_CU(cu_->ArrayCreate(&array_, &line));
    ASSERT_CU(cu_->MemAllocManaged(&managed_, kBytes, CU_MEM_ATTACH_GLOBAL));
    host_.resize(64 << 20);
  }
  CUDA_MEMCPY2D Rows(bool from_host, bool to_host, size_t rows = 16, size_t width = 4096) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.srcHost = copy.dstHost = host_.data();
    copy.srcDevice = a_;
    copy.dstDevice = b_;
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = width;
    copy.Height = rows;
    return copy;
  }
  template <typename Copy>
  Copy Box(bool from_host, bool to_host) {
    Copy copy{};
    copy.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.srcHost = copy.dstHost = host_.data();
    copy.srcDevice = a_;
    copy.dstDevice = b_;
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 4096;
    copy.srcHeight = copy.dstHeight = copy.Height = 4;
    copy.Depth = 4;
    if constexpr (requires { copy.srcContext; }) copy.srcContext = copy.dstContext = context_;
    return copy;
  }

  CUdeviceptr a_ = 0, b_ = 0, managed_ = 0;
  CUarray array_ = nullptr;
  std::vector<char> host_;
};

enum class Charged { kToDevice, kToHost, kCopy, kSet };

TEST_F(CopyTest, EachFormIsChargedOnceByWhatItMoves) {
  const Tenant& t = Weighing(1);
  const Payer p = t.payer();
  Calls& c = *calls_;
  sim_->set_account(nullptr, t.account);
  sim_->set_account(CU_STREAM_PER_THREAD, t.account);
  void* const host = host_.data();
  const CUdeviceptr host_word = reinterpret_cast<CUdeviceptr>(host);
  const CUstream s = t.stream;
  const CUDA_MEMCPY2D up = Rows(true, false), down = Rows(false, true), over = Rows(false, false);
  const auto box_up = Box<CUDA_MEMCPY3D>(true, false), box_over = Box<CUDA_MEMCPY3D>(false, false);
  const auto peer_down = Box<CUDA_MEMCPY3D_PEER>(false, true);
  CUdeviceptr to[] = {b_, b_ + kBytes}, from[] = {a_, a_ + kBytes};
  size_t sizes[] = {kBytes / 2, kBytes / 2};
  CUmemLocation device{};
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  struct Form {
    const char* name;
    Charged charged;
    std::function<CUresult(NullStream)> call;
  };
  std::vector<Form> forms = {
      {"Memcpy up", Charged::kToDevice,
       [&](NullStream n) { return c.Memcpy(p, b_, host_word, kBytes, n); }},
      {"Memcpy over", Charged::kCopy, [&](NullStream n) { return c.Memcpy(p, b_, a_, kBytes, n); }},
      {"HtoD", Charged::kToDevice,
       [&](NullStream n) { return c.MemcpyHtoD(p, b_, host, kBytes, n); }},
      {"DtoH", Charged::kToHost,
       [&](NullStream n) { return c.MemcpyDtoH(p, host, a_, kBytes, n); }},
      {"DtoD", Charged::kCopy, [&](NullStream n) { return c.MemcpyDtoD(p, b_, a_, kBytes, n); }},
      {"DtoA", Charged::kCopy,
       [&](NullStream n) { return c.MemcpyDtoA(p, array_, 0, a_, kBytes, n); }},
      {"AtoD", Charged::kCopy,
       [&](NullStream n) { return c.MemcpyAtoD(p, a_, array_, 0, kBytes, n); }},
      {"AtoA", Charged::kCopy,
       [&](NullStream n) { return c.MemcpyAtoA(p, array_, 0, array_, 0, kBytes, n); }},
      {"HtoA", Charged::kToDevice,
       [&](NullStream n) { return c.MemcpyHtoA(p, array_, 0, host, kBytes, n); }},
      {"AtoH", Charged::kToHost,
       [&](NullStream n) { return c.MemcpyAtoH(p, host, array_, 0, kBytes, n); }},
      {"Peer", Charged::kCopy,
       [&](NullStream n) { return c.MemcpyPeer(p, b_, context_, a_, context_, kBytes, n); }},
      {"2D up", Charged::kToDevice, [&](NullStream n) { return c.Memcpy2D(p, &up, n); }},
      {"2DUnaligned down", Charged::kToHost,
       [&](NullStream n) { return c.Memcpy2DUnaligned(p, &down, n); }},
      {"3D up", Charged::kToDevice, [&](NullStream n) { return c.Memcpy3D(p, &box_up, n); }},
      {"3DPeer down", Charged::kToHost,
       [&](NullStream n) { return c.Memcpy3DPeer(p, &peer_down, n); }},
      {"D8", Charged::kSet, [&](NullStream n) { return c.MemsetD8(p, b_, 1, kBytes, n); }},
      {"D16", Charged::kSet, [&](NullStream n) { return c.MemsetD16(p, b_, 1, kBytes / 2, n); }},
      {"D32", Charged::kSet, [&](NullStream n) { return c.MemsetD32(p, b_, 1, kBytes / 4, n); }},
      {"D2D8", Charged::kSet,
       [&](NullStream n) { return c.MemsetD2D8(p, b_, 4096, 1, 4096, 16, n); }},
      {"D2D16", Charged::kSet,
       [&](NullStream n) { return c.MemsetD2D16(p, b_, 4096, 1, 2048, 16, n); }},
      {"D2D32", Charged::kSet,
       [&](NullStream n) { return c.MemsetD2D32(p, b_, 4096, 1, 1024, 16, n); }},
      {"Async down", Charged::kToHost,
       [&](NullStream) { return c.MemcpyAsync(p, host_word, a_, kBytes, s); }},
      {"HtoDAsync", Charged::kToDevice,
       [&](NullStream) { return c.MemcpyHtoDAsync(p, b_, host, kBytes, s); }},
      {"DtoHAsync", Charged::kToHost,
       [&](NullStream) { return c.MemcpyDtoHAsync(p, host, a_, kBytes, s); }},
      {"DtoDAsync", Charged::kCopy,
       [&](NullStream) { return c.MemcpyDtoDAsync(p, b_, a_, kBytes, s); }},
      {"HtoAAsync", Charged::kToDevice,
       [&](NullStream) { return c.MemcpyHtoAAsync(p, array_, 0, host, kBytes, s); }},
      {"AtoHAsync", Charged::kToHost,
       [&](NullStream) { return c.MemcpyAtoHAsync(p, host, array_, 0, kBytes, s); }},
      {"PeerAsync", Charged::kCopy,
       [&](NullStream) { return c.MemcpyPeerAsync(p, b_, context_, a_, context_, kBytes, s); }},
      {"2DAsync over", Charged::kCopy, [&](NullStream) { return c.Memcpy2DAsync(p, &over, s); }},
      {"3DAsync over", Charged::kCopy,
       [&](NullStream) { return c.Memcpy3DAsync(p, &box_over, s); }},
      {"3DPeerAsync down", Charged::kToHost,
       [&](NullStream) { return c.Memcpy3DPeerAsync(p, &peer_down, s); }},
      {"BatchAsync over", Charged::kCopy,
       [&](NullStream) {
#if CUDA_VERSION >= 12080
         CUmemcpyAttributes how{};
         how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
         size_t first = 0;
         return c.MemcpyBatchAsync(p, to, from, sizes, 2, &how, &first, 1, s);
#else
         return c.MemcpyDtoDAsync(p, to[0], from[0], 2 * sizes[0], s);
#endif
       }},
      {"PrefetchAsync", Charged::kToDevice,
       [&](NullStream) { return c.MemPrefetchAsync(p, managed_, kBytes, device, 0, s); }},
      {"PrefetchAsync V1", Charged::kToHost,
       [&](NullStream) { return c.MemPrefetchAsyncV1(p, managed_, kBytes, CU_DEVICE_CPU, s); }},
      {"D8Async", Charged::kSet, [&](NullStream) { return c.MemsetD8Async(p, b_, 1, kBytes, s); }},
      {"D16Async", Charged::kSet,
       [&](NullStream) { return c.MemsetD16Async(p, b_, 1, kBytes / 2, s); }},
      {"D32Async", Charged::kSet,
       [&](NullStream) { return c.MemsetD32Async(p, b_, 1, kBytes / 4, s); }},
      {"D2D8Async", Charged::kSet,
       [&](NullStream) { return c.MemsetD2D8Async(p, b_, 4096, 1, 4096, 16, s); }},
      {"D2D16Async", Charged::kSet,
       [&](NullStream) { return c.MemsetD2D16Async(p, b_, 4096, 1, 2048, 16, s); }},
      {"D2D32Async", Charged::kSet,
       [&](NullStream) { return c.MemsetD2D32Async(p, b_, 4096, 1, 1024, 16, s); }},
  };
  for (const NullStream null : {NullStream::kLegacy, NullStream::kPerThread}) {
    for (const Form& form : forms) {
      SCOPED_TRACE(form.name);
      const gpushare_sim_truth truth = Truth(t.account);
      const gate::GateStats stats = t.gate->stats();
      ASSERT_CU(form.call(null));
      ASSERT_CU(cu_->CtxSynchronize());
      const gpushare_sim_truth after = Truth(t.account);
      const gate::GateStats now = t.gate->stats();
      const bool command = form.charged == Charged::kCopy || form.charged == Charged::kSet;
      EXPECT_EQ(now.launches - stats.launches, command ? 1u : 0u);
      EXPECT_EQ(now.copy_bytes[0] - stats.copy_bytes[0],
                form.charged == Charged::kToDevice ? kBytes : 0u);
      EXPECT_EQ(now.copy_bytes[1] - stats.copy_bytes[1],
                form.charged == Charged::kToHost ? kBytes : 0u);
      EXPECT_EQ(after.d2d_bytes - truth.d2d_bytes, form.charged == Charged::kCopy ? kBytes : 0u);
      if (form.name[0] != 'P' ||
          form.name[1] != 'r') {  // a prefetch to where the memory already is moves nothing
        EXPECT_EQ(after.h2d_bytes - truth.h2d_bytes, now.copy_bytes[0] - stats.copy_bytes[0]);
        EXPECT_EQ(after.d2h_bytes - truth.d2h_bytes, now.copy_bytes[1] - stats.copy_bytes[1]);
      }
    }
  }
}

// Host memory through an address that is valid on the device.
TEST_F(CopyTest, CopiesOfMappedHostMemoryAreLimitedAsWell) {
  const Tenant& t = Add({.limits = {}, .h2d_bytes_per_s = 1e9, .d2h_bytes_per_s = 1e9});
  auto* const allocate = Symbol<CUresult(void**, size_t, unsigned)>("cuMemHostAlloc");
  auto* const map = Symbol<CUresult(CUdeviceptr*, void*, unsigned)>("cuMemHostGetDevicePointer_v2");
  constexpr size_t kLarge = 40'000'000;
  void* host = nullptr;
  CUdeviceptr mapped = 0;
  ASSERT_CU(allocate(&host, kLarge, CU_MEMHOSTALLOC_DEVICEMAP));
  ASSERT_CU(map(&mapped, host, 0));
  CUDA_MEMCPY2D rows = Rows(false, false, 1000, 40'000);
  rows.srcDevice = mapped;
  const std::function<CUresult()> up[] = {
      [&] { return calls_->MemcpyDtoDAsync(t.payer(), a_, mapped, kLarge, t.stream); },
      [&] { return calls_->MemcpyDtoD(t.payer(), a_, mapped, kLarge); },
      [&] { return calls_->Memcpy2DAsync(t.payer(), &rows, t.stream); }};
  for (const auto& copy : up) {
    SCOPED_TRACE(&copy - up);
    const uint64_t counted = t.gate->stats().copy_bytes[0];
    const Time began = clock().Now();
    ASSERT_CU(copy());
    EXPECT_EQ(t.gate->stats().copy_bytes[0] - counted, kLarge);
    EXPECT_GT(Ms(clock().Now() - began),
              20);  // 40 ms minus the saved-up credit, and the last piece is a debt
    Rest(Millis(100));
  }
  const uint64_t launches = t.gate->stats().launches;
  ASSERT_CU(calls_->MemcpyDtoD(t.payer(), mapped, a_, kLarge));
  EXPECT_EQ(t.gate->stats().copy_bytes[1], kLarge);
  ASSERT_CU(calls_->MemcpyAtoD(t.payer(), mapped, array_, 0, kBytes));
  EXPECT_EQ(t.gate->stats().copy_bytes[1], kLarge + kBytes);
  EXPECT_EQ(t.gate->stats().launches, launches);
  // Without host memory the copy is a command of the device.
  ASSERT_CU(calls_->MemcpyDtoD(t.payer(), a_, b_, kLarge));
  EXPECT_EQ(t.gate->stats().launches, launches + 1);
  EXPECT_EQ(t.gate->stats().copy_bytes[1], kLarge + kBytes);
}

TEST_F(CopyTest, ALimitHoldsAndLargeCopiesGoInPieces) {
  const Tenant& t = Add({.limits = {}, .h2d_bytes_per_s = 1e9, .d2h_bytes_per_s = 1e9});
  const uint64_t before = CallsOf("cuMemcpyHtoDAsync_v2");
  const Time began = clock().Now();
  for (int i = 0; i < 3; ++i) {
    ASSERT_CU(calls_->MemcpyHtoDAsync(t.payer(), a_, host_.data(), 40'000'000, t.stream));
  }
  const double ms = Ms(clock().Now() - began);
  EXPECT_GT(ms, 105);  // 120 MB minus 10 MB of saved-up credit, and the last piece is a debt
  EXPECT_LT(ms, 125);
  EXPECT_EQ(CallsOf("cuMemcpyHtoDAsync_v2") - before, 3u * 9u);
  // Rows are limited as well. Rows beyond the end of the allocation are not split, so the driver refuses the whole
  // copy.
  const CUDA_MEMCPY2D down = Rows(false, true, 1000, 40'000);
  const uint64_t rows_before = CallsOf("cuMemcpy2DAsync_v2");
  ASSERT_CU(calls_->Memcpy2DAsync(t.payer(), &down, t.stream));
  EXPECT_GT(CallsOf("cuMemcpy2DAsync_v2") - rows_before, 5u);
  const uint64_t moved = Truth(t.account).h2d_bytes;
  EXPECT_EQ(calls_->MemcpyHtoDAsync(t.payer(), a_ + (40 << 20), host_.data(), 40 << 20, t.stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Truth(t.account).h2d_bytes, moved);
}

TEST_F(CopyTest, ACapHoldsSetsAndCopiesWithinTheDevice) {
  const Tenant& t = Add({.limits = {.cap = 0.2}});
  for (const bool copies : {false, true}) {
    const Time began = clock().Now();
    for (int i = 0; i < 300; ++i) {  // of 100 us each
      ASSERT_CU(copies ? calls_->MemcpyDtoD(t.payer(), b_, a_, 10'000'000)
                       : calls_->MemsetD32Async(t.payer(), b_, 1, 2'500'000, t.stream));
    }
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    EXPECT_NEAR(Ms(clock().Now() - began), 137, 15)
        << copies;  // 30 ms ÷ 20 %, minus the saved-up credit
    Rest();
  }
  EXPECT_NEAR(MeasuredMs(t), 60, 4);
}

TEST_F(CopyTest, WhatTheDriverRefusesCostsNothing) {
  const Tenant& t = Add({.limits = {}, .h2d_bytes_per_s = 1e6});
  EXPECT_EQ(calls_->MemcpyHtoD(t.payer(), 0x1000, host_.data(), 64 << 20),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls_->MemcpyDtoD(t.payer(), a_, 0x1000, kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls_->MemsetD8(t.payer(), 0x1000, 0, kBytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls_->Memcpy2D(t.payer(), nullptr), cu_->Memcpy2D(nullptr));
  const gate::GateStats stats = t.gate->stats();
  EXPECT_EQ(stats.copy_bytes[0], 0u);
  EXPECT_EQ(stats.launches, 0u);
  const Time began = clock().Now();  // starts without a debt
  EXPECT_CU(calls_->MemcpyHtoD(t.payer(), a_, host_.data(), 1000));
  EXPECT_LT(clock().Now() - began, Millis(2));
}

TEST_F(CopyTest, SharesHoldWithCopiesAmongKernels) {
  const Tenant &a = Weighing(3), &b = Weighing(1);
  int i = 0;
  const std::vector<double> shares =
      Shares(Millis(1300), {[&] {
                              // These copies are short beside the kernels: the simulated device copies while kernels
                              // run.
                              if (++i % 8 == 0)
                                calls_->MemcpyDtoDAsync(a.payer(), b_, a_, 4096, a.stream);
                              if (i % 8 == 4)
                                calls_->MemsetD8Async(a.payer(), b_, 0, 4096, a.stream);
                              return Spin(a, Micros(50));
                            },
                            [&] { return Spin(b, Micros(300)); }});
  EXPECT_NEAR(shares[0], 75, 1.5);
}

}  // namespace
}  // namespace gpushare::work
