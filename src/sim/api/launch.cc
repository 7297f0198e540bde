// SPDX-License-Identifier: Apache-2.0
#include "sim/stream/launch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/graph/ops.h"

namespace gpushare::sim {

void FillKernel(Command* command, const Function& function, const KernelPlan& plan) {
  State& s = state();
  if (function.fault_version != s.faults.version()) [[unlikely]] {
    function.hangs = s.faults.KernelHangs(function.entry.name);
    function.faults = s.faults.KernelFaults(function.entry.name);
    function.fault_version = s.faults.version();
  }
  KernelWork& kernel = command->kernel;
  kernel.groups = kernel.left = plan.groups;
  kernel.resident = 0;
  kernel.hangs = function.hangs ? command->stream->device->hang_era() : 0;
  kernel.faults = function.faults;
  kernel.stamped = plan.stamps != 0;
  kernel.tells_away = kernel.stamped && function.entry.cost.away;
  if (kernel.stamped) [[unlikely]]
    command->stamps = plan.stamps;
  if (s.config.noise == 0 && plan.waves == 1) {
    kernel.group_ns = plan.duration_ns;
    kernel.work_rate = plan.duration_ns == 0 ? 0 : 1.0 / plan.groups;
    return;
  }
  const double alone =
      static_cast<double>(plan.duration_ns) * command->stream->device->NoiseFactor();
  kernel.group_ns = static_cast<uint64_t>(std::llround(alone / plan.waves));
  kernel.work_rate =
      kernel.group_ns == 0 ? 0 : alone / (plan.groups * static_cast<double>(kernel.group_ns));
}

namespace {

// Reads CU_LAUNCH_PARAM_*, the second way to pass parameters.
CUresult ReadExtra(void** extra, const uint8_t** packed, uint64_t* bytes) {
  *packed = nullptr;
  *bytes = 0;
  if (extra == nullptr) return CUDA_SUCCESS;
  const size_t* size = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      *packed = static_cast<const uint8_t*>(extra[1]);
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if ((*packed == nullptr) != (size == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (size != nullptr) *bytes = *size;
  return CUDA_SUCCESS;
}

struct LaunchOptions {
  bool cooperative = false;
  bool has_priority = false;
  int priority = 0;
};

// Inline in each entry point, because a call would pass on a dozen arguments.
[[gnu::always_inline]] inline CUresult Launch(CUfunction handle, const LaunchShape& shape,
                                              CUstream stream_handle, NullStream null,
                                              void** parameters, void** extra,
                                              const LaunchOptions& options) {
  State& s = state();
  Context* current;
  CUresult result = CurrentContext(*t_thread, &current);
  if (result != CUDA_SUCCESS) return result;
  const Function* const function = FindFunction(handle, current);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream;
  result = FindStream(stream_handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (function->module->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;

  const uint8_t* packed = nullptr;
  uint64_t packed_bytes = 0;
  if (extra != nullptr) {
    if (parameters != nullptr) return CUDA_ERROR_INVALID_VALUE;
    result = ReadExtra(extra, &packed, &packed_bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  KernelPlan plan;
  const int planned =
      PlanKernel(*function, s.config, shape, parameters, packed, packed_bytes, &plan);
  if (planned != 0) return static_cast<CUresult>(planned);
  if (options.cooperative &&
      (!plan.fits || (stream->partition != kWholeDevice && !s.config.serial &&
                      plan.groups > PartitionOf(stream->partition).sms.count()))) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }

  const bool first = !std::exchange(function->loaded, true);
  if (first && s.config.first_launch_host > 0) [[unlikely]] {
    s.clock.Spend(s.config.first_launch_host);
    // Other threads had the turn: the objects of this call may be gone.
    if (FindFunction(handle, current) != function) return CUDA_ERROR_INVALID_HANDLE;
    result = FindStream(stream_handle, null, &stream);
    if (result != CUDA_SUCCESS) return result;
  }

  result = CheckSubmit(stream);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture != nullptr) {
    GraphNode* const node = AddCapturedNode(stream, NodeType::kKernel);
    if (options.has_priority) node->priority = options.priority;
    return SetKernel(node, stream->context, function, shape, parameters, packed, packed_bytes);
  }
  if (!HasSpace(stream)) [[unlikely]] {
    result = WaitForSpace(&stream);
    if (result != CUDA_SUCCESS) return result;
    // The module may have been unloaded meanwhile.
    if (s.functions.Find(function->handle) != function) return CUDA_ERROR_INVALID_HANDLE;
  }
  Command* const command = NewCommand(stream, CommandType::kKernel);
  if (options.has_priority) command->level = LevelOf(options.priority);
  if (first) plan.duration_ns += s.config.first_launch_device;
  FillKernel(command, *function, plan);
  Submit(stream, command);
  return CUDA_SUCCESS;
}

CUresult LaunchEx(const CUlaunchConfig* config, CUfunction function, NullStream null,
                  void** parameters, void** extra) {
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  LaunchOptions options;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        options.cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        options.has_priority = true;
        options.priority = std::clamp(attribute.value.priority, 1 - kPriorityLevels, 0);
        break;
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        break;  // no effect on what is modelled
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  const LaunchShape shape{config->gridDimX,      config->gridDimY,  config->gridDimZ,
                          config->blockDimX,     config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes};
  return Launch(function, shape, config->hStream, null, parameters, extra, options);
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_STREAM_API(cuLaunchKernel, _ptsz, kLaunch,
               (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz, unsigned shared, CUstream stream, void** parameters, void** extra),
               Launch(f, {gx, gy, gz, bx, by, bz, shared}, stream, null, parameters, extra, {}));

SIM_STREAM_API(cuLaunchKernelEx, _ptsz, kLaunch,
               (const CUlaunchConfig* config, CUfunction f, void** parameters, void** extra),
               LaunchEx(config, f, null, parameters, extra));

SIM_STREAM_API(cuLaunchCooperativeKernel, _ptsz, kLaunch,
               (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz, unsigned shared, CUstream stream, void** parameters),
               Launch(f, {gx, gy, gz, bx, by, bz, shared}, stream, null, parameters, nullptr,
                      {.cooperative = true, .has_priority = false, .priority = 0}));
