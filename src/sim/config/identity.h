// SPDX-License-Identifier: Apache-2.0
// How a simulated GPU is identified, the same in the driver and in the management library.
#ifndef GPUSHARE_SIM_CONFIG_IDENTITY_H_
#define GPUSHARE_SIM_CONFIG_IDENTITY_H_

#include <array>
#include <cstdint>
#include <string>

#include "gpushare/testing/sim.h"
#include "sim/config/config.h"

namespace gpushare::sim {

inline constexpr int kDriverVersion = 13000;  // CUDA's, as cuDriverGetVersion() returns it

std::array<uint8_t, 16> UuidOf(int ordinal);
// In the form that NVML returns and CUDA_VISIBLE_DEVICES takes: "GPU-" and 8-4-4-4-12 digits.
std::string UuidText(const uint8_t* uuid);  // 16 bytes
// Each GPU is device 0 of its own bus in domain 0.
inline uint32_t PciBusOf(int ordinal) { return static_cast<uint32_t>(ordinal) + 1; }

// The device as it is while no process uses it.
gpushare_sim_device_info IdleInfo(const Config& config, int ordinal);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CONFIG_IDENTITY_H_
