// SPDX-License-Identifier: Apache-2.0
// The keys by which the costs of work other than kernels are learnt; kernels have KernelKey().
#ifndef GPUSHARE_GATE_WORK_KEYS_H_
#define GPUSHARE_GATE_WORK_KEYS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "gate/engine.h"
#include "gate/footprint.h"

namespace gpushare::gate {

// An executable and a function have different keys even at the same address.
inline uint64_t GraphKey(const void* executable) {
  return (reinterpret_cast<uintptr_t>(executable) ^ 0x67726170u) * 0x9e3779b97f4a7c15u;
}

// The number of commands of each graph that was seen when it was instantiated, and their mean footprint. If two graphs map to
// the same word, the older one is forgotten. Thread-safe, lock-free.
class GraphParts {
 public:
  struct Parts {
    uint32_t commands = 0;  // 0: not known
    float footprint = 1;    // in (0, kMostFootprint]
  };
  void Put(const void* executable, const Parts& parts) {
    const uint64_t key = GraphKey(executable);
    words_[key >> 52].store(
        (key & kTag) | Pack(parts.footprint) << 16 | std::min<uint64_t>(parts.commands, kMost),
        std::memory_order_relaxed);
  }
  Parts Find(const void* executable) const {
    const uint64_t key = GraphKey(executable);
    const uint64_t word = words_[key >> 52].load(std::memory_order_relaxed);
    if (((word ^ key) & kTag) != 0) return {};
    return {static_cast<uint32_t>(word & kMost), Unpack(word >> 16 & 0xffff)};
  }

 private:
  static constexpr uint64_t kMost = 0xffff;             // commands
  static constexpr uint64_t kTag = ~uint64_t{0} << 32;  // the upper 12 bits choose the word

  // A footprint in 16 bits: a float without the sign, without exponents that no footprint has, and without its last bits;
  // exact to 1/4096.
  static constexpr float kLeastFootprint = 0x1p-16f;
  static constexpr int kCut = 12;
  static constexpr uint32_t kBase = std::bit_cast<uint32_t>(kLeastFootprint) >> kCut;
  static uint64_t Pack(float footprint) {
    const float kept = std::clamp(footprint, kLeastFootprint, kMostFootprint);
    return ((std::bit_cast<uint32_t>(kept) + (1u << (kCut - 1))) >> kCut) - kBase;
  }
  static float Unpack(uint64_t packed) {
    return std::bit_cast<float>((static_cast<uint32_t>(packed) + kBase) << kCut);
  }

  std::array<std::atomic<uint64_t>, 4096> words_{};
};

// Sets and copies within the device are commands like kernels. Their cost is learnt for each kind and size, in steps of an
// eighth of the size. They are bound by the memory and leave the SMs to other work.
enum class OnDeviceKind : uint64_t { kSet = 1, kCopy = 2, kPeerCopy = 3, kDecompress = 4 };
inline Work OnDevice(OnDeviceKind kind, uint64_t bytes) {
  const int digits = static_cast<int>(std::bit_width(bytes));
  const uint64_t leading = digits > 4 ? bytes >> (digits - 4) : bytes;
  Work work;
  work.key = (static_cast<uint64_t>(kind) << 32 | static_cast<uint64_t>(digits) << 8 | leading) *
             0x9e3779b97f4a7c15u;
  work.footprint = 0;
  return work;
}

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_WORK_KEYS_H_
