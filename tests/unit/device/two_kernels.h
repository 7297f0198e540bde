// SPDX-License-Identifier: Apache-2.0
// Kernels that take as long as their parameter says, one of them for tests to break.
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
