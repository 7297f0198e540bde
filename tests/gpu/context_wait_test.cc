// SPDX-License-Identifier: Apache-2.0
// Waiting for all work of a context while a stream of it captures (driver/await_context.h).
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "driver/await_context.h"
#include "driver/driver.h"
#include "driver/relaxed_capture.h"
#include "driver/table.h"

namespace gpushare::driver {
namespace {

constexpr size_t kBytes = size_t{64} << 20;

class ContextWaitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static const auto* const opened = new auto(Driver::Open({}));
    if (!opened->ok()) GTEST_SKIP() << opened->status();
    driver_ = (*opened)->get();
    cu_ = &driver_->table();
    if (cu_->DevicePrimaryCtxRetain(&context_, 0) != CUDA_SUCCESS) GTEST_SKIP() << "no GPU";
    ASSERT_EQ(cu_->CtxPushCurrent(context_), CUDA_SUCCESS);
    for (CUstream* const stream : {&busy_, &captured_}) {
      ASSERT_EQ(cu_->StreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    }
    ASSERT_EQ(cu_->MemAlloc(&memory_, kBytes), CUDA_SUCCESS);
    // Half a millisecond of work on a card, which takes a tenth of that to submit.
    for (unsigned char i = 0; i < 16; ++i) {
      ASSERT_EQ(cu_->MemsetD8Async(memory_, i, kBytes, busy_), CUDA_SUCCESS);
    }
    ASSERT_EQ(cu_->StreamBeginCapture(captured_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (context_ == nullptr) return;
    CUgraph graph = nullptr;
    cu_->StreamEndCapture(captured_, &graph);
    cu_->MemFree(memory_);
    for (CUstream const stream : {busy_, captured_}) cu_->StreamDestroy(stream);
    CUcontext popped = nullptr;
    cu_->CtxPopCurrent(&popped);
    cu_->DevicePrimaryCtxRelease(0);
  }
  Driver::Capture Status() const {
    Driver::Capture capture = Driver::Capture::kNone;
    EXPECT_EQ(driver_->StreamCapture(captured_, &capture), Result::kSuccess);
    return capture;
  }

  const Driver* driver_ = nullptr;
  const Table* cu_ = nullptr;
  CUcontext context_ = nullptr;
  CUstream busy_ = nullptr, captured_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(ContextWaitTest, BesideACaptureWaitsForTheWorkAndLeavesTheCapture) {
  ASSERT_EQ(cu_->StreamQuery(busy_), CUDA_ERROR_NOT_READY);
  {
    const RelaxedCapture relaxed(*driver_);
    EXPECT_EQ(AwaitContext(*driver_, /*captures=*/true), Result::kSuccess);
  }
  EXPECT_EQ(cu_->StreamQuery(busy_), CUDA_SUCCESS);
  EXPECT_EQ(Status(), Driver::Capture::kActive);
}

// Why that is needed. What a card answers is in the report.
TEST_F(ContextWaitTest, CuCtxSynchronizeBreaksTheCapture) {
  const CUresult result = cu_->CtxSynchronize();
  RecordProperty("cuCtxSynchronize", std::to_string(result));
  RecordProperty("capture", std::to_string(static_cast<int>(Status())));
  if (!driver_->simulated()) return;
  EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(Status(), Driver::Capture::kInvalidated);
}

}  // namespace
}  // namespace gpushare::driver
