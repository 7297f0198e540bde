// SPDX-License-Identifier: Apache-2.0
// A cooperative launch over several devices: the same kernel on each, at most one per device. By default no kernel begins
// before the earlier work in all of the streams has ended, and later work in any of the streams waits for all of the kernels.
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/stream/launch.h"

namespace gpushare::sim {
namespace {

struct OneLaunch {
  const Function* function;
  Stream* stream;
  KernelPlan plan;
};

// Refers to a command, and can tell whether it is gone.
struct Ticket {
  explicit Ticket(Command* of) : command(of), generation(of == nullptr ? 0 : of->generation) {}
  void Before(Command* after) const {
    if (command == nullptr || command->generation != generation) return;
    state().pool.AddEdge(command, after);
  }
  Command* command;
  uint32_t generation;
};

LaunchShape ShapeOf(const CUDA_LAUNCH_PARAMS& one) {
  return {one.gridDimX,  one.gridDimY,  one.gridDimZ,      one.blockDimX,
          one.blockDimY, one.blockDimZ, one.sharedMemBytes};
}

CUresult Read(const CUDA_LAUNCH_PARAMS& one, OneLaunch* launch) {
  State& s = state();
  if (one.hStream == nullptr || one.hStream == CU_STREAM_LEGACY ||
      one.hStream == CU_STREAM_PER_THREAD) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUresult result = FindStream(one.hStream, NullStream::kLegacy, &launch->stream);
  if (result != CUDA_SUCCESS) return result;
  const Stream& stream = *launch->stream;
  launch->function = FindFunction(one.function, stream.context);
  if (launch->function == nullptr || launch->function->module->context != stream.context) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  const int planned = PlanKernel(*launch->function, s.config, ShapeOf(one), one.kernelParams,
                                 nullptr, 0, &launch->plan);
  if (planned != 0) return static_cast<CUresult>(planned);
  if (!launch->plan.fits || (stream.partition != kWholeDevice && !s.config.serial &&
                             launch->plan.groups > PartitionOf(stream.partition).sms.count())) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  result = CheckSubmit(launch->stream);
  return result == CUDA_SUCCESS ? RefuseCapture(launch->stream) : result;
}

bool SameShape(const CUDA_LAUNCH_PARAMS& a, const CUDA_LAUNCH_PARAMS& b) {
  return a.gridDimX == b.gridDimX && a.gridDimY == b.gridDimY && a.gridDimZ == b.gridDimZ &&
         a.blockDimX == b.blockDimX && a.blockDimY == b.blockDimY && a.blockDimZ == b.blockDimZ &&
         a.sharedMemBytes == b.sharedMemBytes;
}

CUresult ReadAll(const CUDA_LAUNCH_PARAMS* list, unsigned count, std::vector<OneLaunch>* launches) {
  for (unsigned i = 0; i < count; ++i) {
    OneLaunch& one = (*launches)[i];
    const CUresult result = Read(list[i], &one);
    if (result != CUDA_SUCCESS) return result;
    if (!SameShape(list[i], list[0]) ||
        one.function->entry.name != (*launches)[0].function->entry.name) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned j = 0; j < i; ++j) {
      if ((*launches)[j].stream->device == one.stream->device) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

// Waits until each stream has room for the kernel and for the commands behind it.
CUresult AwaitRoom(const CUDA_LAUNCH_PARAMS* list, unsigned count,
                   std::vector<OneLaunch>* launches) {
  for (;;) {
    const CUresult result = ReadAll(list, count, launches);
    if (result != CUDA_SUCCESS) return result;
    const auto full = std::find_if(launches->begin(), launches->end(),
                                   [](const OneLaunch& one) { return !HasSpace(one.stream); });
    if (full == launches->end()) return CUDA_SUCCESS;
    // Other threads had the turn, so everything is looked up again.
    const CUresult waited = WaitForSpace(&full->stream);
    if (waited != CUDA_SUCCESS) return waited;
  }
}

CUresult LaunchOnAll(const CUDA_LAUNCH_PARAMS* list, unsigned count, unsigned flags) {
  State& s = state();
  constexpr unsigned kKnown = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                              CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;
  if (list == nullptr || count == 0 || count > s.devices.size() || (flags & ~kKnown) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<OneLaunch> launches(count);
  const CUresult result = AwaitRoom(list, count, &launches);
  if (result != CUDA_SUCCESS) return result;
  std::vector<Ticket> before, kernels;
  before.reserve(count);
  kernels.reserve(count);
  for (const OneLaunch& one : launches) before.emplace_back(one.stream->tail);
  for (size_t i = 0; i < launches.size(); ++i) {
    OneLaunch& one = launches[i];
    if (!std::exchange(one.function->loaded, true)) {
      one.plan.duration_ns += s.config.first_launch_device;
    }
    Command* const command = NewCommand(one.stream, CommandType::kKernel);
    FillKernel(command, *one.function, one.plan);
    for (size_t j = 0; j < before.size(); ++j) {
      if (j != i && (flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC) == 0) {
        before[j].Before(command);
      }
    }
    kernels.emplace_back(command);
    Submit(one.stream, command);
  }
  if ((flags & CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC) != 0 || count == 1) {
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < launches.size(); ++i) {
    Command* const end = NewCommand(launches[i].stream, CommandType::kEmpty);
    end->earliest = 0;
    for (size_t j = 0; j < kernels.size(); ++j) {
      if (j != i) kernels[j].Before(end);
    }
    Submit(launches[i].stream, end);
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuLaunchCooperativeKernelMultiDevice)
(CUDA_LAUNCH_PARAMS* list, unsigned count, unsigned flags) {
  SIM_ENTER(cuLaunchCooperativeKernelMultiDevice, kLaunch);
  return LaunchOnAll(list, count, flags);
}
