// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_BASE_RANGE_H_
#define GPUSHARE_BASE_RANGE_H_

namespace gpushare {

// A NaN is within no range, though neither comparison with an end of it holds.
inline bool Within(double x, double least, double most) { return x >= least && x <= most; }

}  // namespace gpushare

#endif  // GPUSHARE_BASE_RANGE_H_
