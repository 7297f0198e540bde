// SPDX-License-Identifier: Apache-2.0
// Checkpoints of the process itself: the states, which calls wait in which state, and where the memory is.
#include <unistd.h>

#include "tests/sim/sim_test.h"

// The headers have this form since CUDA 13.
#if CUDA_VERSION >= 13000

namespace gpushare::sim_test {
namespace {

class CheckpointTest : public SimTest {
 protected:
  CUprocessState State() const {
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    EXPECT_CU(cuCheckpointProcessGetState(pid_, &state));
    return state;
  }
  CUresult Lock(unsigned timeout_ms = 0) const {
    CUcheckpointLockArgs args = {};
    args.timeoutMs = timeout_ms;
    return cuCheckpointProcessLock(pid_, &args);
  }
  CUresult Save() const { return cuCheckpointProcessCheckpoint(pid_, nullptr); }
  CUresult Restore() const { return cuCheckpointProcessRestore(pid_, nullptr); }
  CUresult Unlock() const { return cuCheckpointProcessUnlock(pid_, nullptr); }

  const int pid_ = getpid();
};

TEST_F(CheckpointTest, EachCallIsOfOneState) {
  EXPECT_EQ(State(), CU_PROCESS_STATE_RUNNING);
  EXPECT_EQ(Save(), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Restore(), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Unlock(), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_CU(Lock());
  EXPECT_EQ(State(), CU_PROCESS_STATE_LOCKED);
  EXPECT_EQ(Lock(), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Restore(), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_CU(Save());
  EXPECT_EQ(State(), CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_EQ(Lock(), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Save(), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Unlock(), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_CU(Restore());
  EXPECT_EQ(State(), CU_PROCESS_STATE_LOCKED);
  ASSERT_CU(Unlock());
  EXPECT_EQ(State(), CU_PROCESS_STATE_RUNNING);
}

TEST_F(CheckpointTest, ALockWaitsForWhatWasSubmitted) {
  const CUstream stream = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(stream, 5'000'000, 100));
  EXPECT_EQ(Lock(2), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Now() - start, 2'000'000u);
  EXPECT_EQ(State(), CU_PROCESS_STATE_RUNNING);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);  // calls do not block
  bool called = false;
  ASSERT_CU(cuLaunchHostFunc(
      stream, [](void* flag) { *static_cast<bool*>(flag) = true; }, &called));
  ASSERT_CU(Lock(10));
  EXPECT_EQ(Now() - start, 5'000'000u);
  EXPECT_TRUE(called);
  ASSERT_CU(Unlock());
}

TEST_F(CheckpointTest, CallsOfALockedProcessWait) {
  ASSERT_CU(Lock());
  const uint64_t start = Now();
  uint64_t allocated = 0, launched = 0;
  SimThread allocates("allocates", [&] {
    int version = 0;
    EXPECT_CU(cuDriverGetVersion(&version));
    const char* name = nullptr;
    EXPECT_CU(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    EXPECT_EQ(Now(), start);
    EXPECT_CU(cuCtxSetCurrent(context_));
    CUdeviceptr memory = 0;
    EXPECT_CU(cuMemAlloc(&memory, kMiB));
    allocated = Now();
  });
  SimThread launches("launches", [&] {
    EXPECT_CU(cuCtxSetCurrent(context_));
    EXPECT_CU(Spin(nullptr, 1000, 1));
    launched = Now();
  });
  gpushare_sim_spend(1'000'000);
  ASSERT_CU(Save());
  gpushare_sim_spend(1'000'000);
  ASSERT_CU(Restore());
  gpushare_sim_spend(1'000'000);
  EXPECT_EQ(allocated + launched, 0u);
  const uint64_t unlocked = Now();
  ASSERT_CU(Unlock());
  allocates.Join();
  launches.Join();
  EXPECT_EQ(allocated, unlocked);
  EXPECT_EQ(launched, unlocked);
}

TEST_F(CheckpointTest, CallsWaitWhileALockWaits) {
  const CUstream stream = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(Spin(stream, 5'000'000, 100));
  uint64_t queried = 0;
  SimThread other("queries", [&] {
    gpushare_sim_spend(1'000'000);
    EXPECT_CU(cuStreamQuery(stream));
    queried = Now();
  });
  ASSERT_CU(Lock());
  gpushare_sim_spend(1'000'000);
  ASSERT_CU(Unlock());
  other.Join();
  EXPECT_EQ(queried - start, 6'000'000u);
}

TEST_F(CheckpointTest, ItsMemoryIsOnTheHostAndComesBack) {
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, 64 * kMiB));
  ASSERT_CU(cuMemsetD8(memory, 7, 64 * kMiB));
  ASSERT_CU(cuCtxSynchronize());
  const uint64_t used = gpushare_sim_memory_used(0);
  ASSERT_CU(Lock());
  EXPECT_EQ(gpushare_sim_memory_used(0), used);
  const uint64_t start = Now();
  ASSERT_CU(Save());
  EXPECT_EQ(gpushare_sim_memory_used(0), 0u);
  // The rate is 50 GB/s.
  EXPECT_NEAR(static_cast<double>(Now() - start), static_cast<double>(used) / 50, 2);
  ASSERT_CU(Restore());
  EXPECT_EQ(gpushare_sim_memory_used(0), used);
  ASSERT_CU(Unlock());
  unsigned char byte = 0;
  ASSERT_CU(cuMemcpyDtoH(&byte, memory + 63 * kMiB, 1));
  EXPECT_EQ(byte, 7);
  ASSERT_CU(cuMemFree(memory));
}

TEST_F(CheckpointTest, BadInput) {
  CUprocessState state;
  EXPECT_EQ(cuCheckpointProcessGetState(pid_ + 1, &state), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCheckpointProcessGetState(pid_, nullptr), CUDA_ERROR_INVALID_VALUE);
  int thread = 0;
  EXPECT_EQ(cuCheckpointProcessGetRestoreThreadId(pid_, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCheckpointProcessGetRestoreThreadId(pid_, &thread), CUDA_ERROR_NOT_SUPPORTED);
  CUcheckpointLockArgs lock = {};
  lock.reserved1[6] = 1;
  EXPECT_EQ(cuCheckpointProcessLock(pid_, &lock), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCheckpointProcessLock(pid_ + 1, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuCheckpointProcessLock(pid_, nullptr));
  CUcheckpointCheckpointArgs save = {};
  save.reserved[0] = 1;
  EXPECT_EQ(cuCheckpointProcessCheckpoint(pid_, &save), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(Save());
  CUcheckpointRestoreArgs restore = {};
  restore.reserved1 = 1;
  EXPECT_EQ(cuCheckpointProcessRestore(pid_, &restore), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(Restore());
  CUcheckpointUnlockArgs unlock = {};
  unlock.reserved[7] = 1;
  EXPECT_EQ(cuCheckpointProcessUnlock(pid_, &unlock), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(Unlock());
}

TEST_F(CheckpointTest, EveryGpuComesBackWhereItWas) {
  Restart(std::string(kPlain) + ",devices=2");
  CUuuid uuids[2] = {};
  for (int i = 0; i < 2; ++i) ASSERT_CU(cuDeviceGetUuid_v2(&uuids[i], i));
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, kMiB));
  ASSERT_CU(Lock());
  ASSERT_CU(Save());
  const auto restore = [&](const CUuuid& from, const CUuuid& to) {
    CUcheckpointGpuPair pair = {from, to};
    CUcheckpointRestoreArgs args = {};
    args.gpuPairs = &pair;
    args.gpuPairsCount = 1;
    return cuCheckpointProcessRestore(pid_, &args);
  };
  EXPECT_EQ(restore(uuids[1], uuids[1]), CUDA_ERROR_INVALID_VALUE);  // not the GPU that was in use
  EXPECT_EQ(restore(uuids[0], uuids[1]), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(State(), CU_PROCESS_STATE_CHECKPOINTED);
  EXPECT_CU(restore(uuids[0], uuids[0]));
  ASSERT_CU(Unlock());
  ASSERT_CU(cuMemFree(memory));
}

TEST_F(CheckpointTest, AResetRunsAgain) {
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAlloc(&memory, kMiB));
  ASSERT_CU(Lock());
  ASSERT_CU(Save());
  Restart(kPlain);
  EXPECT_EQ(State(), CU_PROCESS_STATE_RUNNING);
  EXPECT_EQ(Charged(), 0u);
}

}  // namespace
}  // namespace gpushare::sim_test

#endif  // CUDA_VERSION >= 13000
