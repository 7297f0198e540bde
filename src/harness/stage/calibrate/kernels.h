// SPDX-License-Identifier: Apache-2.0
// The kernels of `gpushare bench calibrate`, as PTX that the driver compiles.
//
//   spin     (u64 ns, u64 stamps)  the first thread of each block reads %globaltimer until `ns` have passed. With `stamps`, a
//                                  pair of u64: the first block's start (least) and the last one's end (greatest)
//   flag     (u64 ns, u64 word)    the same, and writes 1 to the u32 before: in memory that the host watches
//   nothing  ()
//
// The simulated GPU executes none of it; the comment before each `.entry` says what it takes there.
#ifndef GPUSHARE_HARNESS_STAGE_CALIBRATE_KERNELS_H_
#define GPUSHARE_HARNESS_STAGE_CALIBRATE_KERNELS_H_

namespace gpushare::harness {

// PTX ISA 7.0 for sm_70 and newer.
inline constexpr char kKernels[] = R"(
.version 7.0
.target sm_70
.address_size 64

//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 spin_ns, .param .u64 spin_stamps)
{
  .reg .pred %p<3>;
  .reg .b32 %r<1>;
  .reg .b64 %rd<6>;
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra DONE;
  ld.param.u64 %rd0, [spin_ns];
  ld.param.u64 %rd1, [spin_stamps];
  mov.u64 %rd2, %globaltimer;
SPIN:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd0;
  @%p1 bra SPIN;
  setp.eq.u64 %p2, %rd1, 0;
  @%p2 bra DONE;
  cvta.to.global.u64 %rd5, %rd1;
  red.global.min.u64 [%rd5], %rd2;
  red.global.max.u64 [%rd5+8], %rd3;
DONE:
  ret;
}

//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry flag(.param .u64 flag_ns, .param .u64 flag_word)
{
  .reg .pred %p<1>;
  .reg .b32 %r<1>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd0, [flag_ns];
  ld.param.u64 %rd1, [flag_word];
  mov.u32 %r0, 1;
  st.volatile.u32 [%rd1], %r0;
  membar.sys;
  mov.u64 %rd2, %globaltimer;
SPIN:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p0, %rd4, %rd0;
  @%p0 bra SPIN;
  ret;
}

//gpushare.sim cost=1us blocks_per_sm=1
.visible .entry nothing()
{
  ret;
}
)";

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_CALIBRATE_KERNELS_H_
