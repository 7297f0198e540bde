// SPDX-License-Identifier: Apache-2.0
// Device profiles: what `gpushare bench calibrate` measured of a GPU, as the simulated GPU's settings.
//
//   profile: 1
//   from:                 # of what, when and by whom: for people
//     gpu: NVIDIA H200
//   settings:             # the keys of GPUSHARE_SIM that are of a device (gpushare/testing/sim.h)
//     sms: 132
//     launch_host: 2913ns
//   measured:             # what the settings were made of: for people
//     launch_host: {median: 2913, low: 2880, high: 2990, unit: ns, samples: 100}
//   not_measured:
//     teardown: why
//
// YAML, of which no more is read than this: two levels, a key and its value in a line, comments, values in double quotes,
// measurements as they stand here.
#ifndef GPUSHARE_SIM_CONFIG_PROFILE_H_
#define GPUSHARE_SIM_CONFIG_PROFILE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace gpushare::sim {

inline constexpr size_t kMostProfileBytes = 64 << 10;

// Takes a setting of the profile; empty, or what is wrong with it.
using TakeSetting = std::function<std::string(std::string_view key, std::string_view value)>;

// Hands the settings on. Empty, or "FILE:LINE: " and what is wrong.
std::string ParseProfile(std::string_view text, std::string_view file, const TakeSetting& take);

// The same of a file. Never waits for one.
std::string ReadProfile(const std::string& path, const TakeSetting& take);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CONFIG_PROFILE_H_
