// SPDX-License-Identifier: Apache-2.0
#include "player/program.h"

#include "base/status_macros.h"

namespace gpushare::player {
namespace {

// Dynamic shared memory that a function may use without being allowed it first.
constexpr unsigned kSharedWithoutAsking = 48u << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> Program::Load(const driver::Driver& driver,
                                                       const workload::KernelTrace& trace,
                                                       const workload::SpinDevice& device) {
  GPUSHARE_ASSIGN_OR_RETURN(const workload::SpinModule spin, workload::MakeSpinModule(trace));
  driver::Module module = nullptr;
  GPUSHARE_RETURN_IF_ERROR(
      driver::ToStatus(driver.LoadModule(&module, spin.ptx.c_str()), "load module"));
  std::unique_ptr<Program> program(new Program(driver, module));

  std::vector<driver::Function> functions(spin.entries.size());
  for (size_t i = 0; i < functions.size(); ++i) {
    GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(
        driver.GetFunction(&functions[i], module, spin.entries[i].c_str()), "get function"));
  }
  std::vector<unsigned> allowed(functions.size(), kSharedWithoutAsking);
  for (const workload::TraceKernel& kernel : trace.kernels()) {
    const workload::SpinLaunch launch = workload::SpinLaunchOf(kernel, device);
    if (launch.shared_bytes > allowed[launch.entry]) {
      GPUSHARE_RETURN_IF_ERROR(
          driver::ToStatus(driver.SetMaxDynamicShared(functions[launch.entry],
                                                      static_cast<int>(launch.shared_bytes)),
                           "allow shared memory"));
      allowed[launch.entry] = launch.shared_bytes;
    }
    Step step{};
    step.function = functions[launch.entry];
    step.shape.grid.x = launch.grid;
    step.shape.block.x = launch.block;
    step.shape.shared_bytes = launch.shared_bytes;
    step.duration_ns = launch.duration_ns;
    step.block_ns = launch.block_ns;
    program->steps_.push_back(step);
    program->duration_ += kernel.duration;
  }
  return program;
}

Program::~Program() { (void)driver_.UnloadModule(module_); }

absl::StatusOr<workload::SpinDevice> DescribeForSpin(const driver::Driver& driver, int ordinal) {
  GPUSHARE_ASSIGN_OR_RETURN(const driver::Driver::DeviceInfo info, driver.Describe(ordinal));
  workload::SpinDevice device;
  device.sms = info.sm_count;
  device.shared_per_sm = workload::SharedPerSm(info.compute_major, info.compute_minor);
  return device;
}

}  // namespace gpushare::player
