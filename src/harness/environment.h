// SPDX-License-Identifier: Apache-2.0
// What a run's programs find in their environment: the same whoever calls, but for what has no say in sharing a GPU.
#ifndef GPUSHARE_HARNESS_ENVIRONMENT_H_
#define GPUSHARE_HARNESS_ENVIRONMENT_H_

#include <map>
#include <string>

namespace gpushare::harness {

using Variables = std::map<std::string, std::string>;

// Those of `environment`, as the C library has it, without the ones that set a limiter, say which GPUs there are or what
// is loaded into programs: GPUSHARE_*, LD_*, CUDA_*, NVIDIA_*, GPU_CORE_*, ALIYUN_COM_GPU_*.
Variables WithoutThoseOfSharing(const char* const* environment);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_ENVIRONMENT_H_
