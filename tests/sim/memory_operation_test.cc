// SPDX-License-Identifier: Apache-2.0
// Memory operations of streams: writes, waits for every condition, and waits that nothing can end.
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class MemoryOperationTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    void* pinned = nullptr;
    ASSERT_CU(cuMemAllocHost(&pinned, 64));
    word_ = static_cast<uint32_t*>(pinned);
    for (int i = 0; i < 16; ++i) word_[i] = 0;
  }
  CUdeviceptr Word(size_t i = 0) const { return reinterpret_cast<CUdeviceptr>(word_ + i); }
  static CUdeviceptr Device(uint32_t value) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(cuMemAlloc(&pointer, 64));
    EXPECT_CU(cuMemsetD32(pointer, value, 16));
    EXPECT_CU(cuCtxSynchronize());
    return pointer;
  }

  uint32_t* word_ = nullptr;
};

TEST_F(MemoryOperationTest, AStreamWaitsForAnotherOnesWrite) {
  const CUstream a = NewStream(), b = NewStream();
  const CUdeviceptr word = Device(0);
  const uint64_t start = Now();
  ASSERT_CU(cuStreamWaitValue32(a, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(Spin(a, 1000, 1));
  ASSERT_CU(Spin(b, 5000, 1));
  ASSERT_CU(cuStreamWriteValue32(b, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(DoneAt(a, start), 6000u);
  uint32_t read = 0;
  ASSERT_CU(cuMemcpyDtoH(&read, word, 4));
  EXPECT_EQ(read, 1u);
}

TEST_F(MemoryOperationTest, TheHostsWritesAreSeenWhenTimePasses) {
  const CUstream a = NewStream();
  ASSERT_CU(cuStreamWaitValue32(a, Word(), 7, CU_STREAM_WAIT_VALUE_GEQ));
  gpushare_sim_spend(1000);
  EXPECT_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  const uint64_t written = Now();
  __atomic_store_n(word_, 8u, __ATOMIC_RELEASE);
  EXPECT_EQ(DoneAt(a, written), 0u);
  // A write by another thread, at its own time.
  ASSERT_CU(cuStreamWaitValue32(a, Word(), 9, CU_STREAM_WAIT_VALUE_EQ));
  const uint64_t start = Now();
  SimThread writer("writer", [&] {
    gpushare_sim_spend(3000);
    __atomic_store_n(word_, 9u, __ATOMIC_RELEASE);
    gpushare_sim_spend(1000);
  });
  EXPECT_EQ(DoneAt(a, start), 3000u);
}

TEST_F(MemoryOperationTest, CopiesAndSetsEndWaitsToo) {
  const CUstream a = NewStream(), b = NewStream();
  const CUdeviceptr word = Device(0);
  ASSERT_CU(cuStreamWaitValue32(a, word + 8, 0x05050505, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(Spin(b, 2000, 1));
  ASSERT_CU(cuMemsetD8Async(word, 5, 64, b));
  EXPECT_CU(cuStreamSynchronize(a));
}

TEST_F(MemoryOperationTest, EveryConditionIsThatOfTheDocumentation) {
  struct Case {
    unsigned flags;
    uint64_t now, value;
    bool wide, met;
  };
  constexpr unsigned kGeq = CU_STREAM_WAIT_VALUE_GEQ, kEq = CU_STREAM_WAIT_VALUE_EQ,
                     kAnd = CU_STREAM_WAIT_VALUE_AND, kNor = CU_STREAM_WAIT_VALUE_NOR;
  const Case cases[] = {
      {kGeq, 5, 5, false, true},
      {kGeq, 4, 5, false, false},
      {kGeq, 2, 0xffffffff, false, true},  // cyclic
      {kGeq, 0xffffffff, 2, false, false},
      {kGeq, 2, UINT64_MAX, true, true},
      {kGeq, uint64_t{1} << 40, 5, true, true},
      {kEq, 5, 5, false, true},
      {kEq, (uint64_t{1} << 32) + 5, 5, true, false},
      {kAnd, 6, 2, false, true},
      {kAnd, 6, 1, false, false},
      {kAnd, uint64_t{1} << 40, uint64_t{1} << 40, true, true},
      {kNor, 0xffffffff, 0, false, false},
      {kNor, 0xfffffffe, 0, false, true},
      {kNor, 0xffffffff, 0, true, true},
  };
  auto* const wide = reinterpret_cast<uint64_t*>(word_);
  for (const Case& one : cases) {
    const CUstream stream = NewStream();
    *wide = one.now;
    if (one.wide) {
      ASSERT_CU(cuStreamWaitValue64(stream, Word(), one.value, one.flags));
    } else {
      ASSERT_CU(cuStreamWaitValue32(stream, Word(), static_cast<uint32_t>(one.value), one.flags));
    }
    gpushare_sim_spend(100);
    EXPECT_EQ(cuStreamQuery(stream), one.met ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY)
        << one.flags << " " << one.now << " " << one.value;
  }
  ASSERT_CU(cuDevicePrimaryCtxReset(device_));
}

TEST_F(MemoryOperationTest, ABatchRunsInItsOrderOrNotAtAll) {
  const CUstream stream = NewStream();
  CUstreamBatchMemOpParams list[4] = {};
  list[0].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, Word(), {}, 0, 0};
  list[0].writeValue.value = 3;
  list[1].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, Word(), {}, CU_STREAM_WAIT_VALUE_EQ, 0};
  list[1].waitValue.value = 3;
  list[2].memoryBarrier = {CU_STREAM_MEM_OP_BARRIER, CU_STREAM_MEMORY_BARRIER_TYPE_SYS};
  list[3].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_64, Word(2), {}, 0, 0};
  list[3].writeValue.value64 = uint64_t{1} << 40;
  ASSERT_CU(cuStreamBatchMemOp(stream, 4, list, 0));
  ASSERT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(word_[0], 3u);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(word_ + 2), uint64_t{1} << 40);
  list[0].writeValue.value = 9;
  list[3].writeValue.address = Word(1);  // not aligned to 8
  EXPECT_EQ(cuStreamBatchMemOp(stream, 4, list, 0), CUDA_ERROR_INVALID_VALUE);
  list[3].operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
  EXPECT_EQ(cuStreamBatchMemOp(stream, 4, list, 0), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(word_[0], 3u);
  EXPECT_EQ(cuStreamBatchMemOp(stream, 0, list, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamBatchMemOp(stream, 257, list, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamBatchMemOp(stream, 1, list, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamBatchMemOp(stream, 1, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryOperationTest, OperandsAndFlagsAreChecked) {
  const CUstream stream = NewStream();
  uint32_t local = 0;
  const CUdeviceptr device = Device(0);
  EXPECT_EQ(cuStreamWaitValue32(stream, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(&local), 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue32(stream, Word() + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue64(stream, device + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue32(stream, device + 64, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue32(stream, device, 0, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32(stream, device, 0, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32(stream, device, 0, CU_STREAM_WAIT_VALUE_FLUSH),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuStreamWriteValue32(reinterpret_cast<CUstream>(&local), device, 0, 0),
            CUDA_ERROR_INVALID_HANDLE);
  ASSERT_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(cuStreamWriteValue32(stream, device, 0, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  char error[64];
  ASSERT_EQ(
      0, gpushare_sim_inject("error call=cuStreamWriteValue32_v2 code=999", error, sizeof(error)));
  EXPECT_EQ(cuStreamWriteValue32(stream, device, 0, 0), CUDA_ERROR_UNKNOWN);
}

TEST_F(MemoryOperationTest, ABlockedStreamGoesWithItsContext) {
  CUcontext other;
  ASSERT_CU(cuCtxCreate_v2(&other, 0, device_));
  const CUstream stream = NewStream();
  ASSERT_CU(cuStreamWaitValue32(stream, Word(), 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(cuStreamWriteValue32(stream, Word(1), 5, 0));
  ASSERT_CU(cuCtxDestroy(other));
  ASSERT_CU(cuCtxSetCurrent(context_));
  word_[0] = 1;
  gpushare_sim_spend(10'000);
  EXPECT_EQ(word_[1], 0u);
}

TEST_F(MemoryOperationTest, OnTheWallClockTheHostsWritesAreSeenTooWhileSomebodyWaits) {
  Restart(std::string(kPlain) + ",clock=wall");
  void* pinned = nullptr;
  ASSERT_CU(cuMemAllocHost(&pinned, 64));
  auto* const word = static_cast<uint32_t*>(pinned);
  *word = 0;
  const CUstream stream = NewStream();
  ASSERT_CU(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word), 1, 0));
  std::thread writer([&] { __atomic_store_n(word, 1u, __ATOMIC_RELEASE); });
  EXPECT_CU(cuStreamSynchronize(stream));
  writer.join();
}

TEST_F(MemoryOperationTest, RunsRepeat) {
  const auto run = [&] {
    Restart(kPlain);
    void* pinned = nullptr;
    EXPECT_CU(cuMemAllocHost(&pinned, 64));
    auto* const word = static_cast<uint32_t*>(pinned);
    *word = 0;
    const CUstream a = NewStream(), b = NewStream();
    const uint64_t start = Now();
    for (uint32_t i = 1; i <= 20; ++i) {
      EXPECT_CU(cuStreamWaitValue32(a, reinterpret_cast<CUdeviceptr>(word), i, 0));
      EXPECT_CU(Spin(a, 100 * i, 3));
    }
    SimThread writer("writer", [&] {
      for (uint32_t i = 1; i <= 20; ++i) {
        gpushare_sim_spend(777);
        __atomic_store_n(word, i, __ATOMIC_RELEASE);
      }
      gpushare_sim_spend(1);
    });
    EXPECT_CU(Spin(b, 5000, 100));
    EXPECT_CU(cuStreamSynchronize(a));
    return Now() - start;
  };
  const uint64_t first = run();
  EXPECT_EQ(run(), first);
  EXPECT_GT(first, 20 * 777u);
}

TEST_F(MemoryOperationTest, AWaitThatNobodyCanEndIsReported) {
  Restart(std::string(kPlain) + ",watchdog=20ms");
  void* pinned = nullptr;
  ASSERT_CU(cuMemAllocHost(&pinned, 64));
  *static_cast<uint32_t*>(pinned) = 0;
  struct Report {
    std::mutex mutex;
    std::condition_variable changed;
    std::string line;
  } report;
  gpushare_sim_set_log(
      [](const char* line, void* context) {
        auto* const to = static_cast<Report*>(context);
        const std::lock_guard lock(to->mutex);
        to->line = line;
        to->changed.notify_all();
      },
      &report);
  const CUstream stream = NewStream();
  ASSERT_CU(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(pinned), 1,
                                CU_STREAM_WAIT_VALUE_EQ));
  std::atomic<CUresult> result{CUDA_ERROR_UNKNOWN};
  SimThread waits("waits", [&] { result = cuStreamSynchronize(stream); });
  gpushare_sim_spend(1000);
  gpushare_sim_thread_leave();  // no thread is left that could write
  {
    std::unique_lock lock(report.mutex);
    report.changed.wait(lock, [&] { return !report.line.empty(); });
    EXPECT_NE(report.line.find("'waits' (cuStreamSynchronize)"), std::string::npos) << report.line;
    EXPECT_NE(report.line.find("1 stream(s) wait for a value"), std::string::npos) << report.line;
  }
  gpushare_sim_set_log(nullptr, nullptr);
  ASSERT_EQ(0, gpushare_sim_thread_enter("test"));
  *static_cast<uint32_t*>(pinned) = 1;
  gpushare_sim_spend(1000);
  waits.Join();
  EXPECT_EQ(result, CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpushare::sim_test
