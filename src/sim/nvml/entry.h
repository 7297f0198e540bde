// SPDX-License-Identifier: Apache-2.0
// How an entry point of the management library is written.
#ifndef GPUSHARE_SIM_NVML_ENTRY_H_
#define GPUSHARE_SIM_NVML_ENTRY_H_

#include <cstdint>

#include "gpushare/testing/sim.h"
#include "sim/nvml/nvml.h"

namespace gpushare::sim::nvml {

// Between as many initialisations as shutdowns nothing is answered.
bool Initialized();

inline constexpr uint64_t kHandleTag = 0x6e76'6d6c'0000'0000;  // "nvml"
inline Handle HandleOf(int ordinal) {
  return reinterpret_cast<Handle>(kHandleTag | static_cast<uint32_t>(ordinal));
}

// What the handle's device is now. kUninitialized, or kInvalidArgument when it is none of ours.
Return Find(Handle handle, gpushare_sim_device_info* info, int* ordinal = nullptr);

// Copies text with its end, if there is room.
Return Give(const char* text, char* out, unsigned size);

}  // namespace gpushare::sim::nvml

#define NVML_API extern "C" __attribute__((visibility("default")))

// The function has another name too.
#define NVML_ALIAS(other, name) \
  extern "C" decltype(name) other __attribute__((visibility("default"), alias(#name)))

#endif  // GPUSHARE_SIM_NVML_ENTRY_H_
