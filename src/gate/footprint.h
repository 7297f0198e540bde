// SPDX-License-Identifier: Apache-2.0
// How much of the device one launch can hold: ceil(blocks / blocks per SM) / SMs, and a cache of it. Above 1
// it runs in waves, and what the last one leaves free others take: the meter has to know.
//
//   FootprintCache cache;
//   float footprint;
//   if (!cache.Find(key, &footprint)) {
//     footprint = Footprint(shape, blocks_per_sm, sm_count);
//     cache.Put(key, footprint);
//   }
//
// The cache is direct-mapped, one atomic word an entry (44 bits of key, 20 bits of footprint: 6
// before the point), so that a hit costs one load. A collision costs an occupancy query, no more. Thread-safe, lock-free.
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

// The tail of so many waves is not worth telling apart.
inline constexpr float kMostFootprint = 63;

// In (0, kMostFootprint]. A launch that does not fit an SM at all (blocks_per_sm < 1) counts as the whole
// device; the driver refuses it anyway.
inline float Footprint(const driver::LaunchShape& shape, int blocks_per_sm, int sm_count) {
  if (blocks_per_sm < 1 || sm_count < 1) return 1;
  const double blocks = static_cast<double>(shape.grid.x) * shape.grid.y * shape.grid.z;
  const double sms = std::ceil(blocks / blocks_per_sm);
  return static_cast<float>(std::clamp(sms / sm_count, 1.0 / sm_count, double{kMostFootprint}));
}

// What part of the SMs a launch of this footprint holds in the mean over its waves, in (0, 1]: two waves and a half leave
// half of the SMs in the last of three.
inline float MeanWidth(float footprint) {
  return footprint <= 1 ? footprint : footprint / std::ceil(footprint);
}

// Kernels of a graph are of like width when none holds more in the mean than all of them do by more than this.
inline constexpr float kLikeWidth = 1.25f;

// Less in the mean over several waves is not believed: the last one's blocks may have nothing to do while those of the others hold
// the device all the time.
inline constexpr float kLeastMeanWidth = 0.75f;

// One footprint for all of several kernels: as wide as they are in the mean, in as many waves. 1 where there are none, or they
// are not of like width: the replay takes all for as wide and as long as the mean, and one long kernel of the whole device
// among many short ones of one SM would be charged next to nothing. 1 also where the last wave of one is of few blocks.
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

// Of a graph. 1 also where its kernels are not known, or it has commands besides. `of(kernel)`: 1 where that is not known.
inline float GraphFootprint(const driver::GraphContents& graph,
                            absl::FunctionRef<float(const driver::GraphKernel&)> of) {
  if (!graph.IsOfKernelsAlone()) return 1;
  std::vector<float> kernels;
  kernels.reserve(graph.kernels.size());
  for (const driver::GraphKernel& kernel : graph.kernels) kernels.push_back(of(kernel));
  return FootprintOfAll(kernels);
}

// The same after one of its kernels, or several that are one command of it, came to be of another footprint.
inline float FootprintAfterChange(float graph, float changed) {
  constexpr float kSame = 0.01f;  // beyond what GraphParts rounds
  if (std::fabs(changed - graph) <= kSame * graph) return graph;
  // Of how many waves the others are nobody knows any more.
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
      ~kValueMask;  // the low bits chose the entry, all but 8 of them

  std::array<std::atomic<uint64_t>, kEntries> words_{};
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_FOOTPRINT_H_
