// SPDX-License-Identifier: Apache-2.0
// The properties that a device reports, and the granule of its pools.
#include <algorithm>

#include "harness/stage/calibrate/parts.h"

namespace gpushare::harness {
namespace {

double MostOf(const Gpu& gpu, CUdevice_attribute which) {
  return static_cast<double>(gpu.Attribute(which));
}

// The memory that a stream-ordered pool takes from the device for one byte.
void MeasurePool(const Gpu& gpu) {
  const driver::Driver& driver = gpu.driver();
  CUstream stream = gpu.NewStream();
  std::vector<double> granules;
  for (int round = 0; round < 3; ++round) {
    driver::MemPool pool = nullptr;
    if (const driver::Result made = driver.CreatePool(&pool, gpu.ordinal(), 0);
        made != driver::Result::kSuccess) {
      return gpu.ReportWhyNot("pool_granule",
                              std::string(driver::ToStatus(made, "cuMemPoolCreate").message()));
    }
    const size_t before = gpu.FreeMemory();
    driver::DevicePtr byte = 0;
    gpu.Must(static_cast<CUresult>(driver.AllocFromPool(&byte, 1, pool, stream)),
             "cuMemAllocFromPoolAsync");
    gpu.Sync(stream);
    const size_t after = gpu.FreeMemory();
    gpu.Must(static_cast<CUresult>(driver.FreeAsync(byte, stream)), "cuMemFreeAsync");
    gpu.Sync(stream);
    gpu.Must(static_cast<CUresult>(driver.DestroyPool(pool)), "cuMemPoolDestroy");
    if (before > after) granules.push_back(static_cast<double>(before - after));
  }
  if (granules.empty()) {
    return gpu.ReportWhyNot("pool_granule",
                            "an allocation from a pool did not change what is free");
  }
  gpu.Report("pool_granule", granules);
}

}  // namespace

void MeasureDevice(Gpu& gpu) {
  const absl::StatusOr<driver::Driver::DeviceInfo> info = gpu.driver().Describe(gpu.ordinal());
  if (!info.ok()) Gpu::Stop(std::string(info.status().message()));
  gpu.ReportWords("name", info->name);
  gpu.ReportWords("compute_capability",
                  std::to_string(info->compute_major) + "." + std::to_string(info->compute_minor));
  gpu.Report("memory", {static_cast<double>(info->total_memory)});
  gpu.Report("sms", {static_cast<double>(info->sm_count)});
  gpu.Report("max_threads_per_sm",
             {MostOf(gpu, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)});
  gpu.Report("shared_per_sm",
             {MostOf(gpu, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)});
  int blocks = 0;
  GPUSHARE_MUST(gpu, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, gpu.spin(), 1024, 0);
  gpu.Report("blocks_per_sm", {static_cast<double>(blocks)});
  MeasurePool(gpu);
}

}  // namespace gpushare::harness
