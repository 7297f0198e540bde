// SPDX-License-Identifier: Apache-2.0
#include "shim/nvml_device.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "shim/environment.h"
#include "shim/process.h"
#include "shim/visible_devices.h"

namespace gpushare::shim::nvml {
namespace {

std::atomic<void*> library{nullptr};

// The memory that the driver would report for the device. NVML's total also includes what the driver reserves for itself.
Return MemoryForPrograms(Device device, uint64_t* total) {
  MemoryV2 second{};
  second.version = kMemoryV2;
  const auto ask_second = Real<Return(Device, MemoryV2*)>("nvmlDeviceGetMemoryInfo_v2");
  if (ask_second != nullptr && ask_second(device, &second) == kSuccess) {
    *total = second.total - second.reserved;
    return kSuccess;
  }
  Memory first{};
  const auto ask_first = Real<Return(Device, Memory*)>("nvmlDeviceGetMemoryInfo");
  const Return result = ask_first == nullptr ? kFunctionNotFound : ask_first(device, &first);
  *total = first.total;
  return result;
}

// The ordinal that the driver will give the device; -1 if it will hide the device. A MIG instance has no index among the
// devices. It is in the list by its UUID; without a list it is the one device that the driver shows.
Return WillBe(Device device, const char* uuid, int* ordinal) {
  const auto ask_index = Real<Return(Device, unsigned*)>("nvmlDeviceGetIndex");
  const auto ask_count = Real<Return(unsigned*)>("nvmlDeviceGetCount_v2");
  unsigned index = 0, count = 0;
  if (ask_index == nullptr || ask_count == nullptr) return kFunctionNotFound;
  const Return result = ask_count(&count);
  if (result != kSuccess) return result;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (ask_index(device, &index) != kSuccess) index = visible == nullptr ? 0 : count;
  *ordinal = visible == nullptr ? static_cast<int>(index)
                                : PlaceAmong(visible, index, count, uuid).value_or(-1);
  return kSuccess;
}

std::string PciIdOf(Device device) {
  PciInfo info{};
  const auto ask = Real<Return(Device, PciInfo*)>("nvmlDeviceGetPciInfo_v3");
  if (ask == nullptr || ask(device, &info) != kSuccess) return "";
  return std::string(info.bus_id, strnlen(info.bus_id, sizeof info.bus_id));
}

Return LookAtEnvironment(Device device, const char* uuid, Found* found) {
  if (const Return result = WillBe(device, uuid, &found->ordinal); result != kSuccess)
    return result;
  if (found->ordinal < 0) return kSuccess;
  uint64_t total = 0;
  if (const Return result = MemoryForPrograms(device, &total); result != kSuccess) return result;
  const absl::StatusOr<device::Runtime::Share> share = ShareOfEnvironment(found->ordinal);
  if (!share.ok()) return kUnknown;
  const absl::StatusOr<std::optional<uint64_t>> quota =
      device::Runtime::MemoryOfShare(*share, found->ordinal, PciIdOf(device), total);
  if (!quota.ok()) return kUnknown;
  found->has_share = true;
  found->quota = *quota;
  return kSuccess;
}

}  // namespace

void UseLibrary(void* handle) { library.store(handle, std::memory_order_release); }
void* RealSymbol(const char* name) { return dlsym(library.load(std::memory_order_acquire), name); }

Return Look(Device device, Found* found) {
  *found = {};
  char uuid[96] = "";
  const auto ask_uuid = Real<Return(Device, char*, unsigned)>("nvmlDeviceGetUUID");
  if (ask_uuid == nullptr) return kFunctionNotFound;
  if (const Return result = ask_uuid(device, uuid, sizeof(uuid)); result != kSuccess) return result;
  Process* const process = Process::Find();
  if (process == nullptr) return LookAtEnvironment(device, uuid, found);
  if (const std::optional<Process::OfGpu> gpu = process->FindGpu(uuid)) {
    *found = {.has_share = true, .quota = gpu->quota, .share = gpu->share, .ordinal = gpu->ordinal};
  }
  return kSuccess;
}

uint64_t Charged(const Found& found) {
  if (found.share == nullptr) return 0;
  Process::Get().books().Settle();
  return found.share->account().Usage().committed;
}

}  // namespace gpushare::shim::nvml
