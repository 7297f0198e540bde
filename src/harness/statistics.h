// SPDX-License-Identifier: Apache-2.0
// Statistics of a few repetitions of a figure.
#ifndef GPUSHARE_HARNESS_STATISTICS_H_
#define GPUSHARE_HARNESS_STATISTICS_H_

#include <cstddef>
#include <optional>
#include <vector>

namespace gpushare::harness {

// The median with a confidence interval of at least 95 % that assumes nothing about the distribution: between the k-th least and
// the k-th greatest value, where k follows from the binomial distribution of the number of values below the median. Fewer than six
// values give the least and the greatest, with a lower `confidence`.
struct Median {
  double value = 0, low = 0, high = 0, confidence = 0;
  size_t n = 0;  // number of values
};
Median MedianOf(std::vector<double> values);  // all 0 without values

// The probability that two samples from one distribution, whatever it is, lie at least as far apart as these; 1 if their medians
// are equal. The distance is measured by the least k such that all n values of one sample lie below all m of the other, except
// for k values on each of the facing ends. Under one distribution, all C(n + m, n) orders of the values are equally likely. The
// following counts those in which the (n-k)-th least of one comes before the (k+1)-th least of the other, with j values of the
// other before it:
//
//   p = 2 * sum over j = 0..k of C(n-k-1+j, j) * C(k+m-j, k) / C(n+m, n)      (2: either may be the lower one)
//
// So p is at least LeastChanceApart(): 1/10 for three values each, 1/462 for six, 1/92,378 for ten.
double ChanceApart(std::vector<double> some, std::vector<double> others);
// ChanceApart() of two samples of n values that do not overlap: 2 / C(2n, n).
double LeastChanceApart(size_t n);

// The least value that a fraction q of them does not exceed; nullopt without values.
std::optional<double> Quantile(std::vector<double> values, double q);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STATISTICS_H_
