// SPDX-License-Identifier: Apache-2.0
// What each entry point of the management library uses.
#ifndef GPUSHARE_SIM_NVML_ENTRY_H_
#define GPUSHARE_SIM_NVML_ENTRY_H_

#include <cstdint>

#include "gpushare/testing/sim.h"
#include "sim/nvml/nvml.h"

namespace gpushare::sim::nvml {

// False once every initialisation was followed by a shutdown: then no call is answered.
bool Initialized();

inline constexpr uint64_t kHandleTag = 0x6e76'6d6c'0000'0000;  // "nvml"
inline Handle HandleOf(int ordinal) {
  return reinterpret_cast<Handle>(kHandleTag | static_cast<uint32_t>(ordinal));
}

// The present state of the handle's device. kUninitialized, or kInvalidArgument when the handle is not one of ours.
Return Find(Handle handle, gpushare_sim_device_info* info, int* ordinal = nullptr);

// Copies the text with its terminating zero. Fails if there is no room for it.
Return Give(const char* text, char* out, unsigned size);

}  // namespace gpushare::sim::nvml

#define NVML_API extern "C" __attribute__((visibility("default")))

// Exports the function under a second name.
#define NVML_ALIAS(other, name) \
  extern "C" decltype(name) other __attribute__((visibility("default"), alias(#name)))

#endif  // GPUSHARE_SIM_NVML_ENTRY_H_
