// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/probe.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "device/gpu/gpu.h"
#include "device/gpu/surroundings.h"

namespace gpushare::device {
namespace {

template <size_t n>
void Copy(const std::string& from, char (&to)[n]) {
  const size_t length = std::min(from.size(), n - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

void Describe(const absl::Status& status, gpushare_gpu_probe* probe) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      probe->state = GPUSHARE_GPU_ABSENT;
      break;
    case absl::StatusCode::kUnavailable:        // in exclusive use, MPS not ready
    case absl::StatusCode::kResourceExhausted:  // no memory left for a context
      probe->state = GPUSHARE_GPU_BUSY;
      break;
    default:
      probe->state = GPUSHARE_GPU_FAILED;
  }
  Copy(std::string(status.message()), probe->reason);
}

absl::Status ReadMemory(const driver::Driver& driver, int ordinal, gpushare_gpu_probe* probe) {
  const absl::StatusOr<driver::Context> context = driver.RetainPrimaryContext(ordinal);
  if (!context.ok()) return context.status();
  absl::Status status = driver::ToStatus(driver.PushContext(*context), "cuCtxPushCurrent");
  if (status.ok()) {
    size_t free_bytes = 0, total = 0;
    status = driver::ToStatus(driver.MemInfo(&free_bytes, &total), "cuMemGetInfo");
    probe->memory_free = free_bytes;
    probe->memory_total = total;
    static_cast<void>(driver.PopContext());
  }
  static_cast<void>(driver.ReleasePrimaryContext(ordinal));
  return status;
}

}  // namespace

gpushare_gpu_probe Probe(const Runtime& runtime, const std::string& name) {
  gpushare_gpu_probe probe = {};
  probe.struct_size = sizeof(probe);
  probe.ordinal = -1;
  const driver::Driver& driver = runtime.driver();
  const absl::StatusOr<int> ordinal = runtime.Locate(name);
  if (!ordinal.ok()) {
    Describe(ordinal.status(), &probe);
    return probe;
  }
  probe.ordinal = *ordinal;
  const absl::StatusOr<driver::Driver::DeviceInfo> info = driver.Describe(*ordinal);
  if (!info.ok()) {
    Describe(info.status(), &probe);
    return probe;
  }
  Copy(info->name, probe.name);
  Copy(info->uuid, probe.uuid);
  Copy(info->pci_bus_id, probe.pci_id);
  probe.sm_count = info->sm_count;
  probe.compute_major = info->compute_major;
  probe.compute_minor = info->compute_minor;
  probe.mig = info->mig ? 1 : 0;
  probe.memory_total = info->total_memory;

  const Surroundings around = LookAround(*ordinal, info->pci_bus_id);
  probe.mps = around.mps ? 1 : 0;
  probe.mps_percentage = around.mps_percentage;
  probe.mps_memory_limit = around.mps_memory_limit;
  probe.dmem_limit = around.dmem_limit;

  absl::Status health;
  if (const std::shared_ptr<Gpu> gpu = runtime.FindGpu(*ordinal)) {
    probe.memory_promised = gpu->PromisedMemory();
    probe.guarantees_promised = gpu->PromisedGuarantees();
    health = gpu->health();
  }
  const absl::Status memory = ReadMemory(driver, *ordinal, &probe);
  if (!memory.ok()) Describe(memory, &probe);
  // The first error is more precise than what the driver reports afterwards.
  if (!health.ok()) Describe(health, &probe);
  return probe;
}

}  // namespace gpushare::device
