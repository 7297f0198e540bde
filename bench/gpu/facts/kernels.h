// SPDX-License-Identifier: Apache-2.0
// The kernels of the measurements, as PTX that the driver compiles.
//
// spin, spin_small: (u64 cost_ns, u64 cycles, u64 stamps)
//   The first thread of each block spins for `cycles` of its SM's clock. `stamps` is 0 or the address of a pair of
//   u64, which get %globaltimer at the first block's start (minimum) and at the last block's end (maximum).
// nothing: no parameter.
// ticks: (u64 out) counts how often %globaltimer changed in 20,000 reads:
//   out[0] changes, out[1] smallest step, out[2] time from the first to the last change.
// gaps: (u64 cost_ns, u64 duration_ns, u64 threshold_ns, u64 capacity, u64 out)
//   Watches %globaltimer; a jump above the threshold means that the SM ran something else
//   meanwhile. out[0] jumps, out[1] end - start, then up to `capacity` pairs (time of jump since
//   start, length).
// flags: (u64 cost_ns, u64 cycles, u64 out) writes 1 to out[0] (u32) at its start and to out[1] at its
//   end.
#ifndef GPUSHARE_GPU_FACTS_KERNELS_H_
#define GPUSHARE_GPU_FACTS_KERNELS_H_

#include <string>

namespace gpushare::facts {

std::string KernelText();

}  // namespace gpushare::facts

#endif  // GPUSHARE_GPU_FACTS_KERNELS_H_
