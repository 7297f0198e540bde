// SPDX-License-Identifier: Apache-2.0
// Events: states, waiting across streams, elapsed time.
#include <limits>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

using EventTest = SimTest;

TEST_F(EventTest, AnEventIsReadyUntilRecordedAndWhenItsWorkIsDone) {
  const CUstream a = NewStream();
  const CUevent event = NewEvent();
  EXPECT_CU(cuEventQuery(event));
  EXPECT_CU(cuEventSynchronize(event));
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuEventRecord(event, a));
  ASSERT_CU(Spin(a, 10'000, 10));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  const uint64_t start = Now();
  EXPECT_CU(cuEventSynchronize(event));
  EXPECT_EQ(Now() - start, 10'000u);
  EXPECT_CU(cuEventQuery(event));
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
}

TEST_F(EventTest, ElapsedTimeIsThatBetweenTheRecords) {
  const CUstream a = NewStream();
  const CUevent start = NewEvent(), end = NewEvent();
  ASSERT_CU(cuEventRecord(start, a));
  ASSERT_CU(Spin(a, 1'500'000, 10));
  ASSERT_CU(cuEventRecord(end, a));
  float ms = 0;
  EXPECT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
  EXPECT_CU(cuEventSynchronize(end));
  EXPECT_CU(cuEventElapsedTime(&ms, start, end));
  EXPECT_FLOAT_EQ(ms, 1.5f);
  EXPECT_CU(cuEventElapsedTime(&ms, end, start));
  EXPECT_FLOAT_EQ(ms, -1.5f);
}

TEST_F(EventTest, ElapsedTimeIsAFloatAndLosesDigits) {
  const CUstream a = NewStream();
  const CUevent start = NewEvent(), end = NewEvent();
  ASSERT_CU(cuEventRecord(start, a));
  ASSERT_CU(Spin(a, 16'000'000'100, 10));  // 16 s and 100 ns: the step is 976 ns here
  ASSERT_CU(cuEventRecord(end, a));
  float ms = 0;
  EXPECT_CU(cuEventSynchronize(end));
  EXPECT_CU(cuEventElapsedTime(&ms, start, end));
  EXPECT_EQ(ms, 16000.0f);
}

TEST_F(EventTest, WhatCannotBeTimedIsRefused) {
  const CUstream a = NewStream();
  const CUevent timed = NewEvent(), untimed = NewEvent(CU_EVENT_DISABLE_TIMING), never = NewEvent();
  ASSERT_CU(cuEventRecord(timed, a));
  ASSERT_CU(cuEventRecord(untimed, a));
  ASSERT_CU(cuStreamSynchronize(a));
  float ms;
  EXPECT_EQ(cuEventElapsedTime(&ms, timed, untimed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventElapsedTime(&ms, timed, never), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventElapsedTime(nullptr, timed, timed), CUDA_ERROR_INVALID_VALUE);
  CUevent event;
  EXPECT_EQ(cuEventCreate(&event, 0x100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING),
            CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(EventTest, ATimedRecordTakesDeviceTimeAndNoSm) {
  Restart(std::string(kPlain) + ",record_device=1us");
  const CUstream a = NewStream(), b = NewStream();
  const CUevent timed = NewEvent(), untimed = NewEvent(CU_EVENT_DISABLE_TIMING);
  uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 100));
  ASSERT_CU(cuEventRecord(timed, a));
  ASSERT_CU(Spin(a, 10'000, 100));
  ASSERT_CU(Spin(b, 1'000, 100));  // between a's kernels
  EXPECT_EQ(DoneAt(b, start), 11'000u);
  EXPECT_EQ(DoneAt(a, start), 21'000u);
  start = Now();
  ASSERT_CU(Spin(a, 10'000, 100));
  ASSERT_CU(cuEventRecord(untimed, a));
  ASSERT_CU(Spin(a, 10'000, 100));
  EXPECT_EQ(DoneAt(a, start), 20'000u);
}

TEST_F(EventTest, AStreamWaitsForAnEventOfAnother) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent event = NewEvent();
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuEventRecord(event, a));
  ASSERT_CU(Spin(a, 50'000, 10));
  ASSERT_CU(cuStreamWaitEvent(b, event, 0));
  ASSERT_CU(Spin(b, 10'000, 10));
  EXPECT_EQ(DoneAt(b, start), 20'000u);
  EXPECT_EQ(DoneAt(a, start), 60'000u);
}

TEST_F(EventTest, AWaitIsForTheRecordThatWasLatestThen) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent event = NewEvent();
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuEventRecord(event, a));
  ASSERT_CU(cuStreamWaitEvent(b, event, 0));
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuEventRecord(event, a));
  EXPECT_EQ(DoneAt(b, start), 10'000u);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_CU(cuEventSynchronize(event));
  EXPECT_EQ(Now() - start, 20'000u);
}

TEST_F(EventTest, ADestroyedEventDoesNotDisturbItsStreams) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent event = NewEvent();
  const uint64_t start = Now();
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuEventRecord(event, a));
  ASSERT_CU(cuStreamWaitEvent(b, event, 0));
  ASSERT_CU(Spin(b, 10'000, 10));
  ASSERT_CU(cuEventDestroy(event));
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventRecord(event, a), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamWaitEvent(b, event, 0), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(DoneAt(b, start), 20'000u);
}

TEST_F(EventTest, EventPairsOnABusyStreamMeasureQueueing) {
  // This is not an error of the simulator: real drivers do it too, which is why meters chain end markers.
  const CUstream a = NewStream(), b = NewStream();
  const CUevent start = NewEvent(), end = NewEvent();
  ASSERT_CU(Spin(b, 100'000, 100));
  ASSERT_CU(cuEventRecord(start, a));
  ASSERT_CU(Spin(a, 10'000, 100));
  ASSERT_CU(cuEventRecord(end, a));
  ASSERT_CU(cuEventSynchronize(end));
  float ms;
  ASSERT_CU(cuEventElapsedTime(&ms, start, end));
  EXPECT_FLOAT_EQ(ms, 0.110f);
}

}  // namespace
}  // namespace gpushare::sim_test
