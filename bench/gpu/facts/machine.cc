// SPDX-License-Identifier: Apache-2.0
// Properties of the machine, its global timer and the GPU's clock.
#include <sys/utsname.h>

#include <thread>

#include "gpu.h"
#include "groups.h"

namespace gpushare::facts {

void MeasureMachine() {
  const Gpu gpu = OpenGpu(/*warm=*/false);
  ReportValue("driver_init", gpu.init_ns / kNsPerMs);
  ReportValue("context_create", gpu.context_ns / kNsPerMs);
  ReportValue("module_load", gpu.module_ns / kNsPerMs);

  char name[256] = "";
  MUST(gpu.cu, cuDeviceGetName, name, static_cast<int>(sizeof(name)), gpu.device);
  ReportMachine("gpu", JsonString(name));
  int version = 0, major = 0, minor = 0;
  size_t memory = 0;
  MUST(gpu.cu, cuDriverGetVersion, &version);
  MUST(gpu.cu, cuDeviceTotalMem, &memory, gpu.device);
  MUST(gpu.cu, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
       gpu.device);
  MUST(gpu.cu, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
       gpu.device);
  ReportMachine("cuda_driver", std::to_string(version));
  ReportMachine("simulated", gpu.cu.simulated() ? "true" : "false");
  ReportMachine("sms", std::to_string(gpu.sms));
  ReportMachine("memory_bytes", std::to_string(memory));
  ReportMachine("compute_capability",
                JsonString(std::to_string(major) + "." + std::to_string(minor)));
  ReportMachine("stream_priorities", "[" + std::to_string(gpu.least_priority) + ", " +
                                         std::to_string(gpu.greatest_priority) + "]");
  utsname system{};
  uname(&system);
  ReportMachine("kernel", JsonString(system.release));
  ReportMachine("cpus", std::to_string(std::thread::hardware_concurrency()));
}

void MeasureClocks() {
  const Gpu gpu = OpenGpu();
  gpu.NeedExecution();
  CUstream stream = gpu.NewStream();
  ReportValue("sm_clock", gpu.cycles_per_ns * 1'000);

  // Step of %globaltimer.
  CUdeviceptr out = 0;
  MUST(gpu.cu, cuMemAlloc, &out, size_t{64});
  void* parameters[] = {&out};
  std::vector<double> steps, least;
  for (int i = 0; i < 5; ++i) {
    MUST(gpu.cu, cuLaunchKernel, gpu.ticks, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, parameters,
         nullptr);
    gpu.Sync(stream);
    uint64_t seen[3] = {};
    MUST(gpu.cu, cuMemcpyDtoH, &seen[0], out, sizeof(seen));
    if (seen[0] == 0) continue;
    steps.push_back(static_cast<double>(seen[2]) / static_cast<double>(seen[0]));
    least.push_back(static_cast<double>(seen[1]));
  }
  Report("globaltimer_mean_step", steps);
  Report("globaltimer_least_step", least);

  // How much the duration of one and the same kernel varies.
  constexpr size_t kRuns = 400;
  CUdeviceptr stamps = gpu.NewStamps(kRuns);
  for (size_t i = 0; i < kRuns; ++i)
    gpu.Spin(stream, gpu.sms, 50 * kNsPerUs, stamps + i * sizeof(Stamp));
  gpu.Sync(stream);
  std::vector<double> lengths;
  for (const Stamp& stamp : gpu.ReadStamps(stamps, kRuns)) lengths.push_back(stamp.length());
  Report("kernel_length_50us", lengths);
}

}  // namespace gpushare::facts
