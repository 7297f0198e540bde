// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/api_port.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "workload/spin.h"

namespace gpushare::cli {

absl::StatusOr<LoadedProgram> LoadProgram(const Gpu& gpu, const workload::KernelTrace& trace,
                                          const VirtualDevice* of) {
  // Dynamic shared memory that a function may use without setting an attribute.
  constexpr unsigned kSharedWithoutAsking = 48u << 10;

  GPUSHARE_ASSIGN_OR_RETURN(const GpuProbe probe, gpu.Probe());
  workload::SpinDevice device;
  device.sms = std::max(probe.sm_count, 1);
  device.shared_per_sm = workload::SharedPerSm(probe.compute_major, probe.compute_minor);

  GPUSHARE_ASSIGN_OR_RETURN(const workload::SpinModule spin, workload::MakeSpinModule(trace));
  GPUSHARE_ASSIGN_OR_RETURN(
      Module module, of == nullptr ? Module::Load(gpu, spin.ptx) : Module::Load(*of, spin.ptx));
  std::vector<CUfunc_st*> functions;
  for (const std::string& entry : spin.entries) {
    GPUSHARE_ASSIGN_OR_RETURN(const Function function, module.GetFunction(entry));
    functions.push_back(function.native());
  }
  player::Program program = player::MakeProgram(trace, device, functions);
  // All kernels use the same amount, so checking the first is enough.
  const unsigned shared = program.steps.front().shared_bytes;
  if (shared > kSharedWithoutAsking) {
    for (CUfunc_st* function : functions) {
      GPUSHARE_RETURN_IF_ERROR(Function(function).SetMaxShared(gpu, Bytes(shared)));
    }
  }
  return LoadedProgram{std::move(module), std::move(program)};
}

absl::Status ApiPort::Launch(const player::Step& step) {
  uint64_t duration_ns = step.duration_ns, block_ns = step.block_ns, stamps = step.stamps;
  void* params[] = {&duration_ns, &block_ns, &stamps};
  const LaunchShape shape = {
      .grid = {step.grid}, .block = {step.block}, .shared = Bytes(step.shared_bytes)};
  return stream_.LaunchRaw(step.function, shape, params);
}

}  // namespace gpushare::cli
