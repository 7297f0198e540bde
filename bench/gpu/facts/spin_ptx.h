// SPDX-License-Identifier: Apache-2.0
// The common part of the spin kernels of the facts and of the GPU tests, as PTX text.
#ifndef GPUSHARE_BENCH_GPU_FACTS_SPIN_PTX_H_
#define GPUSHARE_BENCH_GPU_FACTS_SPIN_PTX_H_

namespace gpushare::facts {

// PTX ISA 7.0 for sm_70 and newer.
inline constexpr char kPtxHead[] = R"(
.version 7.0
.target sm_70
.address_size 64
)";

// The first thread of a block reads %clock64 until `cycles` have passed; the others go to DONE. Leaves the parameter `out` in
// %rd1, the %globaltimer of the start in %rd2, and that of the end in %rd6. Uses %p0, %p1, %r0 and %rd0 to %rd6.
inline constexpr char kPtxSpin[] = R"(
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra DONE;
  ld.param.u64 %rd0, [cycles];
  ld.param.u64 %rd1, [out];
  mov.u64 %rd2, %globaltimer;
  mov.u64 %rd3, %clock64;
SPIN:
  mov.u64 %rd4, %clock64;
  sub.u64 %rd5, %rd4, %rd3;
  setp.lt.u64 %p1, %rd5, %rd0;
  @%p1 bra SPIN;
  mov.u64 %rd6, %globaltimer;
)";

}  // namespace gpushare::facts

#endif  // GPUSHARE_BENCH_GPU_FACTS_SPIN_PTX_H_
