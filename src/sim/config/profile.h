// SPDX-License-Identifier: Apache-2.0
// Device profiles: what `gpushare bench calibrate` measured on a GPU, as settings of the simulated GPU.
//
//   profile: 1
//   from:                 # which GPU, when and by whom: for people
//     gpu: NVIDIA H200
//   settings:             # the keys of GPUSHARE_SIM that describe a device (gpushare/testing/sim.h)
//     sms: 132
//     launch_host: 2913ns
//   measured:             # the measurements behind the settings: for people
//     launch_host: {median: 2913, low: 2880, high: 2990, unit: ns, samples: 100}
//   not_measured:
//     teardown: why
//
// The parser reads only this subset of YAML: two levels, one key and value a line, comments, values in double quotes, and
// measurements in the form shown.
#ifndef GPUSHARE_SIM_CONFIG_PROFILE_H_
#define GPUSHARE_SIM_CONFIG_PROFILE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace gpushare::sim {

inline constexpr size_t kMostProfileBytes = 64 << 10;

// Applies one setting of the profile. Empty on success, else what is wrong with the setting.
using TakeSetting = std::function<std::string(std::string_view key, std::string_view value)>;

// Passes each setting to `take`. Empty on success, else "FILE:LINE: " and what is wrong.
std::string ParseProfile(std::string_view text, std::string_view file, const TakeSetting& take);

// The same for a file. Never blocks, whatever kind of file it is.
std::string ReadProfile(const std::string& path, const TakeSetting& take);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CONFIG_PROFILE_H_
