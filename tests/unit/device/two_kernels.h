// SPDX-License-Identifier: Apache-2.0
// Two kernels that run for as long as their parameter says; tests make one of them fail.
#ifndef GPUSHARE_TESTS_UNIT_DEVICE_TWO_KERNELS_H_
#define GPUSHARE_TESTS_UNIT_DEVICE_TWO_KERNELS_H_

namespace gpushare {

inline constexpr char kTwoKernels[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns)
{
  ret;
}
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry broken(.param .u64 ns)
{
  ret;
}
)";

}  // namespace gpushare

#endif  // GPUSHARE_TESTS_UNIT_DEVICE_TWO_KERNELS_H_
