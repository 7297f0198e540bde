// SPDX-License-Identifier: Apache-2.0
// The marks by which a program tells the counter (steps.h) where a piece begins and where it ends. A mark is a breakpoint
// instruction with two registers. Without a tracer, the program ends there.
#ifndef GPUSHARE_BENCH_FAST_PATH_STEPS_HERE_H_
#define GPUSHARE_BENCH_FAST_PATH_STEPS_HERE_H_

#define GPUSHARE_STEPS_BEGIN(name) __asm__ volatile("int3" : : "D"(1L), "S"(name) : "memory")
#define GPUSHARE_STEPS_END() __asm__ volatile("int3" : : "D"(2L), "S"(0L) : "memory")

#endif  // GPUSHARE_BENCH_FAST_PATH_STEPS_HERE_H_
