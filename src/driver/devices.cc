// SPDX-License-Identifier: Apache-2.0
// The driver's devices and their properties.
#include <cstdio>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "driver/driver.h"
#include "driver/state.h"

namespace gpushare::driver {
namespace {

absl::Status Check(CUresult result, const char* call) {
  return ToStatus(Result{static_cast<int>(result)}, call);
}

std::string UuidText(const CUuuid& uuid, bool mig) {
  std::string text = mig ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    text += hex;
  }
  return text;
}

}  // namespace

absl::StatusOr<int> Driver::DeviceCount() const {
  int count = 0;
  GPUSHARE_RETURN_IF_ERROR(Check(state_->table.DeviceGetCount(&count), "cuDeviceGetCount"));
  return count;
}

absl::StatusOr<Driver::DeviceInfo> Driver::Describe(int ordinal) const {
  const Table& table = state_->table;
  DeviceInfo info;
  CUdevice device = 0;
  GPUSHARE_RETURN_IF_ERROR(Check(table.DeviceGet(&device, ordinal), "cuDeviceGet"));
  char name[256] = "";
  GPUSHARE_RETURN_IF_ERROR(
      Check(table.DeviceGetName(name, static_cast<int>(sizeof(name)), device), "cuDeviceGetName"));
  info.name = name;
  // Only the name tells: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
  info.mig = absl::StrContains(info.name, " MIG ");
  CUuuid uuid = {};
  GPUSHARE_RETURN_IF_ERROR(Check(table.DeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
  info.uuid = UuidText(uuid, info.mig);
  char bus_id[32] = "";
  const CUresult bus = table.DeviceGetPCIBusId(bus_id, static_cast<int>(sizeof(bus_id)), device);
  if (bus != CUDA_ERROR_NOT_SUPPORTED) {
    GPUSHARE_RETURN_IF_ERROR(Check(bus, "cuDeviceGetPCIBusId"));
    info.pci_bus_id = bus_id;
  }
  GPUSHARE_RETURN_IF_ERROR(
      Check(table.DeviceTotalMem(&info.total_memory, device), "cuDeviceTotalMem"));
  const struct {
    int* value;
    CUdevice_attribute attribute;
  } attributes[] = {
      {&info.sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {&info.max_threads_per_sm, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
      {&info.compute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {&info.compute_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {&info.concurrent_kernels, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS},
  };
  for (const auto& [value, attribute] : attributes) {
    GPUSHARE_RETURN_IF_ERROR(
        Check(table.DeviceGetAttribute(value, attribute, device), "cuDeviceGetAttribute"));
  }
  return info;
}

absl::StatusOr<Context> Driver::RetainPrimaryContext(int ordinal) const {
  CUdevice device = 0;
  GPUSHARE_RETURN_IF_ERROR(Check(state_->table.DeviceGet(&device, ordinal), "cuDeviceGet"));
  CUcontext context = nullptr;
  GPUSHARE_RETURN_IF_ERROR(
      Check(state_->table.DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain"));
  return context;
}

}  // namespace gpushare::driver
