// SPDX-License-Identifier: Apache-2.0
// Host functions in streams.
#include <atomic>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

using HostFunctionTest = SimTest;

struct Record {
  std::vector<uint64_t> times;
  uint64_t spend = 0;
  CUresult driver_call = CUDA_SUCCESS;
  std::atomic<uint32_t> word{0};
};

void Note(void* data) {
  auto* const record = static_cast<Record*>(data);
  if (record->spend > 0) gpushare_sim_spend(record->spend);
  record->times.push_back(gpushare_sim_now());
}

TEST_F(HostFunctionTest, ItRunsWhenItsStreamComesToIt) {
  const CUstream a = NewStream();
  Record record;
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuLaunchHostFunc(a, &Note, &record));
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuLaunchHostFunc(a, &Note, &record));
  EXPECT_EQ(Now(), start);
  EXPECT_EQ(DoneAt(a, start), 20'000u);
  EXPECT_EQ(record.times, (std::vector<uint64_t>{start + 10'000, start + 20'000}));
}

TEST_F(HostFunctionTest, TimeItSpendsHoldsUpItsStreamAndNoSm) {
  const CUstream a = NewStream(), b = NewStream();
  Record record;
  record.spend = 5'000;
  const uint64_t start = Now();
  ASSERT_CU(cuLaunchHostFunc(a, &Note, &record));
  ASSERT_CU(Spin(a, 10'000, 100));
  ASSERT_CU(Spin(b, 10'000, 100));
  EXPECT_EQ(DoneAt(a, start), 20'000u);
  EXPECT_EQ(DoneAt(b, start), 20'000u);
  EXPECT_DOUBLE_EQ(Truth(0).used_ns, 20'000);
}

TEST_F(HostFunctionTest, ItMayNotCallTheDriver) {
  const CUstream a = NewStream();
  Record record;
  ASSERT_CU(cuLaunchHostFunc(
      a, [](void* data) { static_cast<Record*>(data)->driver_call = cuCtxSynchronize(); },
      &record));
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(record.driver_call, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(HostFunctionTest, ItMayWakeAThread) {
  const CUstream a = NewStream();
  Record record;
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuLaunchHostFunc(
      a,
      [](void* data) {
        auto* const one = static_cast<Record*>(data);
        one->word = 1;
        gpushare_sim_wake_word(reinterpret_cast<const uint32_t*>(&one->word), 1);
      },
      &record));
  EXPECT_EQ(
      0, gpushare_sim_wait_word(reinterpret_cast<const uint32_t*>(&record.word), 0, UINT64_MAX, 0));
  EXPECT_EQ(Now() - start, 10'000u);
}

TEST_F(HostFunctionTest, CallbacksGetTheirStream) {
  const CUstream a = NewStream();
  struct Seen {
    CUstream stream;
    CUresult status;
  } seen{nullptr, CUDA_ERROR_UNKNOWN};
  ASSERT_CU(cuStreamAddCallback(
      a,
      [](CUstream stream, CUresult status, void* data) {
        *static_cast<Seen*>(data) = {stream, status};
      },
      &seen, 0));
  ASSERT_CU(cuStreamSynchronize(a));
  EXPECT_EQ(seen.stream, a);
  EXPECT_EQ(seen.status, CUDA_SUCCESS);
  EXPECT_EQ(cuStreamAddCallback(a, nullptr, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchHostFunc(a, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostFunctionTest, AContextMayGoWithAFunctionQueued) {
  CUcontext other;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  CUmodule module;
  CUfunction spin;
  ASSERT_CU(cuModuleLoadData(&module, kPtx));
  ASSERT_CU(cuModuleGetFunction(&spin, module, "spin"));
  const CUstream a = NewStream();
  Record record;
  uint64_t ns = 10'000;
  void* parameters[] = {&ns};
  ASSERT_CU(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, a, parameters, nullptr));
  ASSERT_CU(cuLaunchHostFunc(a, &Note, &record));
  ASSERT_CU(cuCtxDestroy(other));
  gpushare_sim_spend(100'000);
  EXPECT_TRUE(record.times.empty());
}

}  // namespace
}  // namespace gpushare::sim_test
