// SPDX-License-Identifier: Apache-2.0
// Checkpoints of this process: calls are held, and its memory is moved to the host and back.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "sim/api/api.h"
#include "sim/config/identity.h"

#if CUDA_VERSION < 12080
typedef int CUprocessState;
struct CUcheckpointLockArgs_st;
struct CUcheckpointCheckpointArgs_st;
struct CUcheckpointRestoreArgs_st;
struct CUcheckpointUnlockArgs_st;
extern "C" {
CUresult CUDAAPI cuCheckpointProcessGetState(int, CUprocessState*);
CUresult CUDAAPI cuCheckpointProcessGetRestoreThreadId(int, int*);
CUresult CUDAAPI cuCheckpointProcessLock(int, struct CUcheckpointLockArgs_st*);
CUresult CUDAAPI cuCheckpointProcessCheckpoint(int, struct CUcheckpointCheckpointArgs_st*);
CUresult CUDAAPI cuCheckpointProcessRestore(int, struct CUcheckpointRestoreArgs_st*);
CUresult CUDAAPI cuCheckpointProcessUnlock(int, struct CUcheckpointUnlockArgs_st*);
}
#endif

namespace gpushare::sim {
namespace {

using Process = Checkpoint::State;

// The arguments as headers declare them since 13.0. All have 64 bytes, of which older headers reserve more.
struct LockArguments {
  unsigned timeout_ms, reserved0;
  uint64_t reserved1[7];
};
struct GpuPair {
  CUuuid from, to;
};
struct RestoreArguments {
  const GpuPair* pairs;
  unsigned count;
  char reserved[52 - sizeof(void*)];
  uint64_t reserved1;
};
#if CUDA_VERSION >= 13000
static_assert(sizeof(LockArguments) == sizeof(CUcheckpointLockArgs));
static_assert(sizeof(RestoreArguments) == sizeof(CUcheckpointRestoreArgs));
static_assert(sizeof(GpuPair) == sizeof(CUcheckpointGpuPair));
#endif

template <typename T>
T Read(const void* arguments) {
  T read{};
  if (arguments != nullptr) std::memcpy(&read, arguments, sizeof(T));
  return read;
}

// Whether the reserved bytes are zero.
bool IsZero(const void* arguments, size_t from = 0) {
  const auto* const bytes = static_cast<const unsigned char*>(arguments);
  return arguments == nullptr ||
         std::all_of(bytes + from, bytes + sizeof(LockArguments), [](auto b) { return b == 0; });
}

bool IsThis(int pid) { return pid == getpid(); }

// Some work that has not completed; null if there is none.
Command* Pending() {
  for (Context* context : state().contexts.All()) {
    if (context->legacy->tail != nullptr) return context->legacy->tail;
    for (const GreenContext* green : context->greens) {
      if (green->legacy->tail != nullptr) return green->legacy->tail;
    }
    for (const Stream* stream : context->streams) {
      if (stream->tail != nullptr) return stream->tail;
    }
  }
  return nullptr;
}

void Run() {
  State& s = state();
  s.checkpoint.state = Process::kRunning;
  s.checkpoint.held = false;
  s.clock.WakeAll(s.checkpoint.waiting, 0);
}

CUresult Lock(int pid, const void* arguments) {
  State& s = state();
  const auto asked = Read<LockArguments>(arguments);
  if (!IsThis(pid) || !IsZero(arguments, sizeof(unsigned))) return CUDA_ERROR_INVALID_VALUE;
  if (s.checkpoint.held) return CUDA_ERROR_ILLEGAL_STATE;
  s.checkpoint.held = true;
  const uint64_t deadline =
      asked.timeout_ms == 0 ? kForever : s.clock.now() + asked.timeout_ms * uint64_t{1'000'000};
  while (Command* const command = Pending()) {
    if (s.clock.Wait(command->waiters, "cuCheckpointProcessLock", deadline)) continue;
    if (Pending() == nullptr) break;
    Run();
    return CUDA_ERROR_NOT_READY;
  }
  s.checkpoint.state = Process::kLocked;
  return CUDA_SUCCESS;
}

// Spends the time of the copies, one device after the other.
void Spend(uint64_t bytes, double bytes_per_ns) {
  state().clock.Spend(static_cast<uint64_t>(static_cast<double>(bytes) / bytes_per_ns));
}

CUresult Save(int pid, const void* arguments) {
  State& s = state();
  if (!IsThis(pid) || !IsZero(arguments)) return CUDA_ERROR_INVALID_VALUE;
  if (s.checkpoint.state != Process::kLocked) return CUDA_ERROR_ILLEGAL_STATE;
  for (const auto& device : s.devices) {
    Spend(device->memory.used(), s.config.d2h);
    device->memory.Park();
  }
  s.checkpoint.state = Process::kCheckpointed;
  return CUDA_SUCCESS;
}

// Every GPU in use must be in the list, and each may only be replaced by itself.
CUresult CheckPairs(const RestoreArguments& asked) {
  if (asked.count == 0) return asked.pairs == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (asked.pairs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto same = [](const CUuuid& a, const CUuuid& b) {
    return std::memcmp(&a, &b, sizeof(a)) == 0;
  };
  bool others = false;
  for (const auto& device : state().devices) {
    CUuuid own;
    const auto bytes = UuidOf(device->which);
    std::memcpy(&own, bytes.data(), sizeof(own));
    const GpuPair* const end = asked.pairs + asked.count;
    const GpuPair* const pair =
        std::find_if(asked.pairs, end, [&](const GpuPair& one) { return same(one.from, own); });
    if (pair == end && device->memory.parked() != 0) return CUDA_ERROR_INVALID_VALUE;
    if (pair != end && !same(pair->to, own)) others = true;
  }
  return others ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult Restore(int pid, const void* arguments) {
  State& s = state();
  const auto asked = Read<RestoreArguments>(arguments);
  constexpr size_t kReserved = offsetof(RestoreArguments, reserved);
  if (!IsThis(pid) || !IsZero(arguments, kReserved)) return CUDA_ERROR_INVALID_VALUE;
  if (s.checkpoint.state != Process::kCheckpointed) return CUDA_ERROR_ILLEGAL_STATE;
  if (const CUresult result = CheckPairs(asked); result != CUDA_SUCCESS) return result;
  // Moves memory back to all devices or, if one has no room, to none.
  for (size_t i = 0; i < s.devices.size(); ++i) {
    if (s.devices[i]->memory.Unpark()) continue;
    while (i-- != 0) s.devices[i]->memory.Park();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  s.checkpoint.state = Process::kLocked;
  for (const auto& device : s.devices) Spend(device->memory.used(), s.config.h2d);
  return CUDA_SUCCESS;
}

}  // namespace

void AwaitUnlock() {
  State& s = state();
  while (s.checkpoint.held) s.clock.Wait(s.checkpoint.waiting, "its process is locked");
}

}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuCheckpointProcessGetState)(int pid, CUprocessState* process) {
  SIM_ENTER(cuCheckpointProcessGetState, kCall);
  if (process == nullptr || !IsThis(pid)) return CUDA_ERROR_INVALID_VALUE;
  *process = static_cast<CUprocessState>(state().checkpoint.state);
  return CUDA_SUCCESS;
}
// Only the calling thread restores.
SIM_API(cuCheckpointProcessGetRestoreThreadId)(int pid, int* tid) {
  SIM_ENTER(cuCheckpointProcessGetRestoreThreadId, kCall);
  if (tid == nullptr || !IsThis(pid)) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}
SIM_API(cuCheckpointProcessLock)(int pid, struct CUcheckpointLockArgs_st* arguments) {
  SIM_ENTER(cuCheckpointProcessLock, kCall);
  return Lock(pid, arguments);
}
SIM_API(cuCheckpointProcessCheckpoint)(int pid, struct CUcheckpointCheckpointArgs_st* arguments) {
  SIM_ENTER(cuCheckpointProcessCheckpoint, kCall);
  return Save(pid, arguments);
}
SIM_API(cuCheckpointProcessRestore)(int pid, struct CUcheckpointRestoreArgs_st* arguments) {
  SIM_ENTER(cuCheckpointProcessRestore, kCall);
  return Restore(pid, arguments);
}
SIM_API(cuCheckpointProcessUnlock)(int pid, struct CUcheckpointUnlockArgs_st* arguments) {
  SIM_ENTER(cuCheckpointProcessUnlock, kCall);
  if (!IsThis(pid) || !IsZero(arguments)) return CUDA_ERROR_INVALID_VALUE;
  if (state().checkpoint.state != Process::kLocked) return CUDA_ERROR_ILLEGAL_STATE;
  Run();
  return CUDA_SUCCESS;
}
