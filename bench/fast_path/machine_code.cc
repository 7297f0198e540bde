// SPDX-License-Identifier: Apache-2.0
#include "bench/fast_path/machine_code.h"

#include <cstddef>

namespace gpushare::fast_path {

Instruction Decode(const std::array<uint8_t, 16>& bytes) {
  size_t i = 0;
  for (; i < 12; ++i) {
    const uint8_t byte = bytes[i];
    if (byte == 0xf0) return Instruction::kAtomic;  // LOCK
    const bool prefix = byte == 0x66 || byte == 0x67 || byte == 0xf2 || byte == 0xf3 ||
                        byte == 0x2e || byte == 0x36 || byte == 0x3e || byte == 0x26 ||
                        byte == 0x64 || byte == 0x65 || (byte & 0xf0) == 0x40;  // REX
    if (!prefix) break;
  }
  if (bytes[i] == 0xcc) return Instruction::kBreakpoint;
  if (bytes[i] == 0x0f && bytes[i + 1] == 0x05) return Instruction::kSyscall;
  // XCHG with memory is locked even without the prefix.
  if ((bytes[i] == 0x86 || bytes[i] == 0x87) && bytes[i + 1] < 0xc0) return Instruction::kAtomic;
  return Instruction::kPlain;
}

}  // namespace gpushare::fast_path
