// SPDX-License-Identifier: Apache-2.0
// What a few repetitions say of a figure.
#ifndef GPUSHARE_HARNESS_STATISTICS_H_
#define GPUSHARE_HARNESS_STATISTICS_H_

#include <cstddef>
#include <optional>
#include <vector>

namespace gpushare::harness {

// The median, and the two of the values between which it lies with at least 95 % confidence, whatever the values'
// distribution: the k-th least and the k-th greatest, by the binomial distribution of how many lie below it. Of fewer
// than six values the least and the greatest, of which that is not so sure: `confidence` says how sure.
struct Median {
  double value = 0, low = 0, high = 0, confidence = 0;
  size_t n = 0;  // of how many values
};
Median MedianOf(std::vector<double> values);  // none: all 0

// The least value that at least a part q of them do not exceed; of none there is none.
std::optional<double> Quantile(std::vector<double> values, double q);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STATISTICS_H_
