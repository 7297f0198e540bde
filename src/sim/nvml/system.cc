// SPDX-License-Identifier: Apache-2.0
// Initialisation, versions, error texts.
#include <atomic>
#include <cstring>

#include "sim/config/identity.h"
#include "sim/nvml/entry.h"
#include "sim/nvml/source.h"

namespace gpushare::sim::nvml {
namespace {

constexpr char kDriver[] = "580.00", kLibrary[] = "13.580.00";

std::atomic<uint32_t> initializations{0};

}  // namespace

bool Initialized() { return initializations.load(std::memory_order_acquire) > 0; }

Return Find(Handle handle, gpushare_sim_device_info* info, int* ordinal) {
  if (!Initialized()) return kUninitialized;
  const auto bits = reinterpret_cast<uint64_t>(handle);
  if (bits >> 32 != kHandleTag >> 32) return kInvalidArgument;
  const auto index = static_cast<int>(static_cast<uint32_t>(bits));
  const auto found = DeviceInfo(index);
  if (!found.has_value()) return kInvalidArgument;
  *info = *found;
  if (ordinal != nullptr) *ordinal = index;
  return kSuccess;
}

Return Give(const char* text, char* out, unsigned size) {
  if (out == nullptr) return kInvalidArgument;
  const size_t bytes = std::strlen(text) + 1;
  if (size < bytes) return kInsufficientSize;
  std::memcpy(out, text, bytes);
  return kSuccess;
}

}  // namespace gpushare::sim::nvml

using namespace gpushare::sim::nvml;  // NOLINT: the entry points are global names

NVML_API uint32_t gpushare_sim_nvml_abi_version() { return GPUSHARE_SIM_ABI_VERSION; }

NVML_API Return nvmlInitWithFlags(unsigned) {
  if (DeviceCount() < 0) return kUnknown;  // GPUSHARE_SIM cannot be read
  initializations.fetch_add(1, std::memory_order_acq_rel);
  return kSuccess;
}
NVML_API Return nvmlInit_v2() { return nvmlInitWithFlags(0); }
NVML_ALIAS(nvmlInit, nvmlInit_v2);

NVML_API Return nvmlShutdown() {
  uint32_t before = initializations.load(std::memory_order_acquire);
  do {
    if (before == 0) return kUninitialized;
  } while (!initializations.compare_exchange_weak(before, before - 1, std::memory_order_acq_rel));
  return kSuccess;
}

NVML_API const char* nvmlErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kArgumentVersionMismatch:
      return "Argument Version Mismatch";
    default:
      return "Unknown Error";
  }
}

// Versions do not require initialisation, except for the driver's.
NVML_API Return nvmlSystemGetDriverVersion(char* version, unsigned size) {
  return Initialized() ? Give(kDriver, version, size) : kUninitialized;
}

NVML_API Return nvmlSystemGetNVMLVersion(char* version, unsigned size) {
  return Give(kLibrary, version, size);
}

NVML_API Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = gpushare::sim::kDriverVersion;
  return kSuccess;
}
NVML_ALIAS(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2);
