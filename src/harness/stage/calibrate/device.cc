// SPDX-License-Identifier: Apache-2.0
// The properties that a device reports, the granule of its pools and the pages of its memory.
#include <algorithm>
#include <bit>

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

// What an allocation that is one byte longer than any page takes of the device.
void MeasurePage(const Gpu& gpu) {
  constexpr size_t kLonger = size_t{16} << 20;
  std::vector<double> pages;
  for (int round = 0; round < 3; ++round) {
    const size_t before = gpu.FreeMemory();
    CUdeviceptr memory = 0;
    GPUSHARE_MUST(gpu, cuMemAlloc, &memory, kLonger + 1);
    const size_t after = gpu.FreeMemory();
    GPUSHARE_MUST(gpu, cuMemFree, memory);
    // Where the driver has kept pages from an earlier allocation, fewer are taken.
    if (before < after + kLonger + 1) continue;
    const size_t page = before - after - kLonger;
    if (page == 1) {
      pages.push_back(0);
    } else if (std::has_single_bit(page)) {
      pages.push_back(static_cast<double>(page));
    }
  }
  if (pages.empty()) {
    return gpu.ReportWhyNot("page", "an allocation did not take whole pages of what is free");
  }
  gpu.Report("page", pages);
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
  MeasurePage(gpu);
}

}  // namespace gpushare::harness
