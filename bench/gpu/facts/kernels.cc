// SPDX-License-Identifier: Apache-2.0
#include "kernels.h"

#include "spin_ptx.h"

namespace gpushare::facts {
namespace {

// The comment line before each `.entry` tells the simulated GPU, which does not execute kernels, what a kernel costs
// (gpushare/testing/sim.h).

// One block per SM. The simulated GPU is told so; on a real one the launch asks for enough shared memory.
constexpr char kSpin[] = R"(
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 cost, .param .u64 cycles, .param .u64 out)
)";

// As many blocks per SM as fit.
constexpr char kSpinSmall[] = R"(
//gpushare.sim cost=param:0
.visible .entry spin_small(.param .u64 cost, .param .u64 cycles, .param .u64 out)
)";

constexpr char kSpinRegisters[] = R"({
  .reg .pred %p<3>;
  .reg .b32 %r<1>;
  .reg .b64 %rd<8>;
)";
constexpr char kSpinEnd[] = R"(
  setp.eq.u64 %p2, %rd1, 0;
  @%p2 bra DONE;
  cvta.to.global.u64 %rd7, %rd1;
  red.global.min.u64 [%rd7], %rd2;
  red.global.max.u64 [%rd7+8], %rd6;
DONE:
  ret;
}
)";

constexpr char kOthers[] = R"(
//gpushare.sim cost=1us blocks_per_sm=1
.visible .entry nothing()
{
  ret;
}

//gpushare.sim cost=1ms blocks_per_sm=1
.visible .entry ticks(.param .u64 ticks_out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<9>;
  ld.param.u64 %rd0, [ticks_out];
  cvta.to.global.u64 %rd1, %rd0;
  mov.u32 %r0, 0;
  mov.u64 %rd2, 0;
  mov.u64 %rd3, -1;
  mov.u64 %rd7, 0;
  mov.u64 %rd4, %globaltimer;
LOOP:
  mov.u64 %rd5, %globaltimer;
  sub.u64 %rd6, %rd5, %rd4;
  setp.eq.u64 %p0, %rd6, 0;
  @%p0 bra NEXT;
  mov.u64 %rd4, %rd5;
  // The first change only starts the count: it came at an unknown part of a step.
  setp.eq.u64 %p1, %rd7, 0;
  @%p1 bra FIRST;
  add.u64 %rd2, %rd2, 1;
  min.u64 %rd3, %rd3, %rd6;
  bra NEXT;
FIRST:
  mov.u64 %rd7, %rd5;
NEXT:
  add.u32 %r0, %r0, 1;
  setp.lt.u32 %p2, %r0, 20000;
  @%p2 bra LOOP;
  sub.u64 %rd8, %rd4, %rd7;
  st.global.u64 [%rd1], %rd2;
  st.global.u64 [%rd1+8], %rd3;
  st.global.u64 [%rd1+16], %rd8;
  ret;
}

//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry gaps(.param .u64 gaps_cost, .param .u64 gaps_duration, .param .u64 gaps_threshold,
                     .param .u64 gaps_capacity, .param .u64 gaps_out)
{
  .reg .pred %p<4>;
  .reg .b64 %rd<14>;
  ld.param.u64 %rd0, [gaps_duration];
  ld.param.u64 %rd1, [gaps_threshold];
  ld.param.u64 %rd2, [gaps_capacity];
  ld.param.u64 %rd3, [gaps_out];
  cvta.to.global.u64 %rd4, %rd3;
  add.u64 %rd5, %rd4, 16;
  mov.u64 %rd6, 0;
  mov.u64 %rd7, %globaltimer;
  mov.u64 %rd8, %rd7;
LOOP:
  mov.u64 %rd9, %globaltimer;
  sub.u64 %rd10, %rd9, %rd8;
  sub.u64 %rd11, %rd8, %rd7;
  mov.u64 %rd8, %rd9;
  setp.lt.u64 %p0, %rd10, %rd1;
  @%p0 bra NEXT;
  setp.ge.u64 %p1, %rd6, %rd2;
  add.u64 %rd6, %rd6, 1;
  @%p1 bra NEXT;
  st.global.u64 [%rd5], %rd11;
  st.global.u64 [%rd5+8], %rd10;
  add.u64 %rd5, %rd5, 16;
NEXT:
  sub.u64 %rd12, %rd9, %rd7;
  setp.lt.u64 %p2, %rd12, %rd0;
  @%p2 bra LOOP;
  st.global.u64 [%rd4], %rd6;
  st.global.u64 [%rd4+8], %rd12;
  ret;
}

//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry flags(.param .u64 flags_cost, .param .u64 flags_cycles, .param .u64 flags_out)
{
  .reg .pred %p<1>;
  .reg .b32 %r<1>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd0, [flags_cycles];
  ld.param.u64 %rd1, [flags_out];
  mov.u32 %r0, 1;
  st.volatile.u32 [%rd1], %r0;
  membar.sys;
  mov.u64 %rd2, %clock64;
SPIN:
  mov.u64 %rd3, %clock64;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p0, %rd4, %rd0;
  @%p0 bra SPIN;
  st.volatile.u32 [%rd1+4], %r0;
  membar.sys;
  ret;
}
)";

}  // namespace

std::string KernelText() {
  const std::string body = std::string(kSpinRegisters) + kPtxSpin + kSpinEnd;
  return std::string(kPtxHead) + kSpin + body + kSpinSmall + body + kOthers;
}

}  // namespace gpushare::facts
