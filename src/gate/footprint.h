// SPDX-License-Identifier: Apache-2.0
// How much of the device one launch can hold: ceil(blocks / blocks per SM) / SMs, and a cache of it. A launch above 1 runs
// in waves, and other tenants use the SMs that its last wave leaves free, which the meter has to know.
//
//   FootprintCache cache;
//   float footprint;
//   if (!cache.Find(key, &footprint)) {
//     footprint = Footprint(shape, blocks_per_sm, sm_count);
//     cache.Put(key, footprint);
//   }
//
// The cache is direct-mapped with one atomic word per entry (44 bits of key, 20 bits of footprint, 6 of these before the
// point), so a hit costs one load. A collision costs only an occupancy query. Thread-safe, lock-free.
#ifndef GPUSHARE_GATE_FOOTPRINT_H_
#define GPUSHARE_GATE_FOOTPRINT_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "driver/driver.h"

namespace gpushare::gate {

// With this many waves, the tail of the last one makes no difference worth keeping.
inline constexpr float kMostFootprint = 63;

// The footprint of a launch, in (0, kMostFootprint]. A launch whose blocks do not fit on an SM (blocks_per_sm < 1) counts as
// the whole device; the driver refuses it anyway. So does every launch on a device that runs one kernel at a time, whose
// `sm_count` is given as 0.
inline float Footprint(const driver::LaunchShape& shape, int blocks_per_sm, int sm_count) {
  if (blocks_per_sm < 1 || sm_count < 1) return 1;
  const double blocks = static_cast<double>(shape.grid.x) * shape.grid.y * shape.grid.z;
  const double sms = std::ceil(blocks / blocks_per_sm);
  return static_cast<float>(std::clamp(sms / sm_count, 1.0 / sm_count, double{kMostFootprint}));
}

// The part of the SMs that a launch of this footprint holds, averaged over its waves, in (0, 1]. A footprint of 2.5 leaves half
// of the SMs free in the last of three waves.
inline float MeanWidth(float footprint) {
  return footprint <= 1 ? footprint : footprint / std::ceil(footprint);
}

// Kernels of a graph are of like width if the widest has at most this many times their mean width.
inline constexpr float kLikeWidth = 1.25f;

// A smaller mean width over several waves is not believed: the blocks of the last wave may have nothing to do, while those of
// the other waves hold the device all the time.
inline constexpr float kLeastMeanWidth = 0.75f;

// One footprint that stands for several kernels, with their mean width and mean number of waves. It is 1 if there are none or
// if they are not of like width: the replay takes each to be as wide and as long as the mean, so one long kernel of the whole
// device among many short ones of one SM would be charged next to nothing. It is also 1 if the last wave of one has few blocks.
inline float FootprintOfAll(absl::Span<const float> kernels) {
  if (kernels.empty()) return 1;
  const float count = static_cast<float>(kernels.size());
  float widths = 0, waves = 0, most = 0;
  for (const float footprint : kernels) {
    const float width = MeanWidth(footprint);
    if (footprint > 1 && width < kLeastMeanWidth) return 1;
    widths += width;
    waves += std::max(std::ceil(footprint), 1.0f);
    most = std::max(most, width);
  }
  const float width = widths / count;
  return most <= kLikeWidth * width ? width * std::round(waves / count) : 1;
}

// The footprint of a graph. It is 1 if its kernels are not known, if it has other commands too, or if some run at the same time. `of(kernel)` returns 1 for a
// kernel whose footprint is not known.
inline float GraphFootprint(const driver::GraphContents& graph,
                            absl::FunctionRef<float(const driver::GraphKernel&)> of) {
  if (!graph.IsChainOfKernels()) return 1;
  std::vector<float> kernels;
  kernels.reserve(graph.kernels.size());
  for (const driver::GraphKernel& kernel : graph.kernels) kernels.push_back(of(kernel));
  return FootprintOfAll(kernels);
}

// The footprint of a graph after one of its commands, a kernel or several kernels, got another footprint.
inline float FootprintAfterChange(float graph, float changed) {
  constexpr float kSame = 0.01f;  // beyond what GraphParts rounds
  if (std::fabs(changed - graph) <= kSame * graph) return graph;
  // The number of waves of the other kernels is not known any more.
  if (changed > 1) return 1;
  if (changed <= MeanWidth(graph)) return graph;
  return graph <= 1 ? changed : 1;
}

class FootprintCache {
 public:
  bool Find(uint64_t key, float* footprint) const {
    const uint64_t word = words_[key & (kEntries - 1)].load(std::memory_order_relaxed);
    if (((word ^ key) & kTagMask) != 0 || (word & kValueMask) == 0) return false;
    *footprint = static_cast<float>(word & kValueMask) / kOne;
    return true;
  }
  void Put(uint64_t key, float footprint) {
    const auto value =
        static_cast<uint64_t>(std::lround(std::min(footprint, kMostFootprint) * kOne));
    words_[key & (kEntries - 1)].store(
        (key & kTagMask) | std::clamp<uint64_t>(value, 1, kValueMask), std::memory_order_relaxed);
  }
  void Clear() {
    for (std::atomic<uint64_t>& word : words_) word.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr uint64_t kEntries = 4096;
  static constexpr uint64_t kValueMask = (uint64_t{1} << 20) - 1;
  static constexpr float kOne = 1 << 14;
  static constexpr uint64_t kTagMask =
      ~kValueMask;  // low key bits are not kept: 12 of these 20 choose the entry

  std::array<std::atomic<uint64_t>, kEntries> words_{};
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_FOOTPRINT_H_
