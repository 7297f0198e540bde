// SPDX-License-Identifier: Apache-2.0
// What a program tells whoever counts its instructions (steps.h): where a piece begins that is to be counted, and where
// it ends. A breakpoint instruction with two registers; without a tracer the program ends there.
#ifndef GPUSHARE_BENCH_FAST_PATH_STEPS_HERE_H_
#define GPUSHARE_BENCH_FAST_PATH_STEPS_HERE_H_

#define GPUSHARE_STEPS_BEGIN(name) __asm__ volatile("int3" : : "D"(1L), "S"(name) : "memory")
#define GPUSHARE_STEPS_END() __asm__ volatile("int3" : : "D"(2L), "S"(0L) : "memory")

#endif  // GPUSHARE_BENCH_FAST_PATH_STEPS_HERE_H_
