// SPDX-License-Identifier: Apache-2.0
// By what the cost of work is learnt that is no kernel; kernels have KernelKey().
#ifndef GPUSHARE_GATE_WORK_KEYS_H_
#define GPUSHARE_GATE_WORK_KEYS_H_

#include <bit>
#include <cstdint>

#include "gate/engine.h"

namespace gpushare::gate {

// Executables and functions have different keys even at the same address.
inline uint64_t GraphKey(const void* executable) {
  return (reinterpret_cast<uintptr_t>(executable) ^ 0x67726170u) * 0x9e3779b97f4a7c15u;
}

// Sets, and copies within the device, are commands as kernels are. What one takes is learnt for each kind
// and size, in steps of an eighth. They are bound by the memory and leave the SMs to others.
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
