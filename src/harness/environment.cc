// SPDX-License-Identifier: Apache-2.0
#include "harness/environment.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace gpushare::harness {
namespace {

constexpr std::string_view kLeftOut[] = {"GPUSHARE_", "LD_",       "CUDA_",
                                         "NVIDIA_",   "GPU_CORE_", "ALIYUN_COM_GPU_"};

}  // namespace

Variables WithoutThoseOfSharing(const char* const* environment) {
  Variables variables;
  for (; *environment != nullptr; ++environment) {
    const std::string_view line = *environment;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, equals);
    const bool left_out =
        std::any_of(std::begin(kLeftOut), std::end(kLeftOut),
                    [&](std::string_view start) { return name.substr(0, start.size()) == start; });
    if (!left_out) variables.emplace(name, line.substr(equals + 1));
  }
  return variables;
}

}  // namespace gpushare::harness
