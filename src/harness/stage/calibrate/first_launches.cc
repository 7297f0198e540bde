// SPDX-License-Identifier: Apache-2.0
// How much longer the first launch of a function takes than the second: drivers load modules lazily.
#include <algorithm>
#include <optional>

#include "harness/stage/calibrate/backlog.h"
#include "harness/stage/calibrate/parts.h"

namespace gpushare::harness {
namespace {

constexpr Nanos kKernel = Micros(20);

void Launch(const Gpu& gpu, CUfunction function, CUstream stream) {
  auto cost = static_cast<uint64_t>(kKernel.count());
  CUdeviceptr stamps = 0;
  void* params[] = {&cost, &stamps};
  gpu.Launch(function, stream, 1, 0, params);
}

}  // namespace

void MeasureFirstLaunches(Gpu& gpu) {
  gpu.Warm();
  CUstream stream = gpu.NewStream();
  CUevent start = gpu.NewEvent(), end = gpu.NewEvent();
  std::vector<double> host, device;
  for (int round = 0; round < 10; ++round) {
    CUfunction function = nullptr;
    CUmodule module = gpu.LoadKernels(&function);
    const auto call = [&] {
      gpu.Sync(stream);
      const Time before = gpu.Now();
      Launch(gpu, function, stream);
      const double took = InNs(gpu.Now() - before);
      gpu.Sync(stream);
      return took;
    };
    const double first = call(), second = call();
    host.push_back(std::max(first - second, 0.0));
    GPUSHARE_MUST(gpu, cuModuleUnload, module);
  }
  for (int round = 0; round < 10; ++round) {
    CUfunction function = nullptr;
    CUmodule module = gpu.LoadKernels(&function);
    // Launched behind a kernel, so that host time is not included. If the driver waits for the device to load the module, the launch
    // comes too late for that.
    bool first = true, late = false;
    const auto run = [&] {
      CUevent head_done = gpu.NewEvent();
      gpu.Sync(stream);
      gpu.Spin(stream, Millis(50));
      gpu.Record(head_done, stream);
      gpu.Record(start, stream);
      Launch(gpu, function, stream);
      gpu.Record(end, stream);
      if (first) late = gpu.IsDone(head_done);
      first = false;
      gpu.Sync(stream);
      GPUSHARE_MUST(gpu, cuEventDestroy, head_done);
      return gpu.ElapsedNs(start, end);
    };
    const double once = run(), again = run();
    if (!late) device.push_back(std::max(once - again, 0.0));
    GPUSHARE_MUST(gpu, cuModuleUnload, module);
  }
  gpu.Report("first_launch_host", host);
  if (device.empty()) {
    gpu.ReportWhyNot("first_launch_device", "a first launch waits until the device is idle");
  } else {
    gpu.Report("first_launch_device", device);
  }
}

}  // namespace gpushare::harness
