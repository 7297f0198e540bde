// SPDX-License-Identifier: Apache-2.0
// Sizes by class: powers of two, each cut into sixteen steps (two-level segregated fit, Masmano et al.,
// 2004). A class holds sizes that differ by at most a sixteenth, so the first block of a class above the
// one asked for fits, and what is cut off it is little.
//
// Sizes are counted in granules of 512 bytes, the alignment that frameworks expect of an allocation.
#ifndef GPUSHARE_POOL_SIZE_CLASS_H_
#define GPUSHARE_POOL_SIZE_CLASS_H_

#include <bit>
#include <cstdint>

namespace gpushare::pool {

inline constexpr uint64_t kGranule = 512;
inline constexpr uint64_t kMostBytes = uint64_t{1} << 48;  // of one block

inline constexpr int kStepBits = 4;
inline constexpr uint32_t kSteps = 1u << kStepBits;
inline constexpr uint32_t kClasses =
    (39 - kStepBits + 2) * kSteps;  // of up to kMostBytes / kGranule

inline constexpr uint64_t Granules(uint64_t bytes) { return (bytes + kGranule - 1) / kGranule; }

// The class in which a block of this many granules is listed.
inline constexpr uint32_t ClassOf(uint64_t granules) {
  if (granules < kSteps) return static_cast<uint32_t>(granules);
  const int log = 63 - std::countl_zero(granules);
  return static_cast<uint32_t>(log - kStepBits + 1) * kSteps +
         static_cast<uint32_t>((granules >> (log - kStepBits)) & (kSteps - 1));
}

// The least class in which every block has at least this many granules.
inline constexpr uint32_t ClassAbove(uint64_t granules) {
  if (granules < kSteps) return static_cast<uint32_t>(granules);
  const int log = 63 - std::countl_zero(granules);
  return ClassOf(granules + (uint64_t{1} << (log - kStepBits)) - 1);
}

}  // namespace gpushare::pool

#endif  // GPUSHARE_POOL_SIZE_CLASS_H_
