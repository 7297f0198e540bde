// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_BASE_RANGE_H_
#define GPUSHARE_BASE_RANGE_H_

namespace gpushare {

// False for a NaN. (`x < least || x > most` would not reject one.)
inline bool Within(double x, double least, double most) { return x >= least && x <= most; }

}  // namespace gpushare

#endif  // GPUSHARE_BASE_RANGE_H_
