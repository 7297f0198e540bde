// SPDX-License-Identifier: Apache-2.0
// Decodes just enough of x86-64 to classify one instruction.
#ifndef GPUSHARE_BENCH_FAST_PATH_MACHINE_CODE_H_
#define GPUSHARE_BENCH_FAST_PATH_MACHINE_CODE_H_

#include <array>
#include <cstdint>

namespace gpushare::fast_path {

enum class Instruction { kPlain, kAtomic, kSyscall, kBreakpoint };
// `bytes`: the instruction, and whatever follows it.
Instruction Decode(const std::array<uint8_t, 16>& bytes);

}  // namespace gpushare::fast_path

#endif  // GPUSHARE_BENCH_FAST_PATH_MACHINE_CODE_H_
