// SPDX-License-Identifier: Apache-2.0
#include "sim/module/module.h"

#include <algorithm>
#include <cstring>

namespace gpushare::sim {
namespace {

constexpr int kFits = 0;
constexpr int kInvalidValue = 1;
constexpr int kOutOfResources = 701;

constexpr uint32_t kWarp = 32;
constexpr uint32_t kMaxBlockThreads = 1024;

}  // namespace

uint32_t BlocksPerSm(const Function& function, const Config& config, uint32_t threads,
                     uint64_t shared_bytes) {
  if (function.cached_threads == threads && function.cached_shared == shared_bytes) {
    return function.cached_blocks;
  }
  const uint32_t rounded = (threads + kWarp - 1) / kWarp * kWarp;
  uint64_t blocks = static_cast<uint32_t>(config.max_threads_per_sm) / std::max(rounded, kWarp);
  blocks = std::min<uint64_t>(blocks, kMaxBlocksPerSm);
  blocks = std::min(blocks, config.shared_per_sm / (shared_bytes + kReservedShared));
  function.cached_threads = threads;
  function.cached_shared = shared_bytes;
  function.cached_blocks = static_cast<uint32_t>(blocks);
  return function.cached_blocks;
}

int PlanKernel(const Function& function, const Config& config, const LaunchShape& shape,
               void* const* parameters, const uint8_t* packed, uint64_t packed_bytes,
               KernelPlan* plan) {
  // Each is at least 1: for 0, the subtraction wraps around and exceeds every limit.
  if (shape.grid_x - 1 >= 0x7fffffff || shape.grid_y - 1 >= 65535 || shape.grid_z - 1 >= 65535 ||
      shape.block_x - 1 >= 1024 || shape.block_y - 1 >= 1024 || shape.block_z - 1 >= 64) {
    return kInvalidValue;
  }
  const uint32_t threads = shape.block_x * shape.block_y * shape.block_z;
  if (threads > kMaxBlockThreads) return kInvalidValue;
  if (threads > function.entry.max_threads) return kOutOfResources;
  if (shape.shared_bytes > static_cast<uint32_t>(function.settings.max_dynamic_shared))
    return kInvalidValue;
  const PtxEntry& entry = function.entry;
  if (!entry.parameters.empty() && parameters == nullptr && packed == nullptr) return kInvalidValue;

  uint32_t per_sm = entry.cost.blocks_per_sm;
  if (per_sm == 0) {
    per_sm = BlocksPerSm(function, config, threads, shape.shared_bytes);
    if (per_sm == 0) return kOutOfResources;
  }
  const uint64_t blocks = uint64_t{shape.grid_x} * shape.grid_y * shape.grid_z;
  const uint64_t footprint = per_sm == 1 ? blocks : (blocks + per_sm - 1) / per_sm;
  const auto sms = static_cast<uint64_t>(config.sms);
  const uint64_t waves = footprint <= sms ? 1 : (footprint + sms - 1) / sms;
  if (footprint > UINT32_MAX) return kInvalidValue;

  // The parameter has 8 bytes: this was checked when the module was read.
  const auto read = [&](uint32_t index, uint64_t* value) {
    const KernelParameter& parameter = entry.parameters[index];
    const void* from = nullptr;
    if (parameters != nullptr) {
      from = parameters[index];
    } else if (parameter.offset + parameter.size <= packed_bytes) {
      from = packed + parameter.offset;
    }
    if (from == nullptr) return false;
    std::memcpy(value, from, sizeof(*value));
    return true;
  };
  switch (entry.cost.kind) {
    case KernelCost::Kind::kFixed:
      plan->duration_ns = entry.cost.ns;
      break;
    case KernelCost::Kind::kPerWave:
      plan->duration_ns = entry.cost.ns * waves;
      break;
    case KernelCost::Kind::kParameter:
      if (!read(entry.cost.parameter, &plan->duration_ns)) return kInvalidValue;
      if (plan->duration_ns > 1'000'000'000'000'000) return kInvalidValue;
      break;
  }
  plan->stamps = 0;
  if (entry.cost.stamps.has_value() && !read(*entry.cost.stamps, &plan->stamps)) {
    return kInvalidValue;
  }
  plan->fits = waves == 1;
  // In serial mode a kernel is one group that takes the whole device.
  plan->groups = config.serial ? 1 : static_cast<uint32_t>(footprint);
  plan->waves = config.serial ? 1 : static_cast<uint32_t>(waves);
  return kFits;
}

}  // namespace gpushare::sim
