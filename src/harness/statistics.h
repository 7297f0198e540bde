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

// How probable it is that values of one thing, drawn twice, lie as far apart as these do, whatever their distribution: 1
// where their medians are one. The measure is the least k such that, but for k values at the ends that face each other,
// all n of one lie below all m of the other. Where both are of one thing every order of the n + m values is as likely as
// any other, and of these C(n + m, n) that many have the (n-k)-th least of the one before the (k+1)-th least of the
// other, j of the other's before it:
//
//   p = 2 * sum over j = 0..k of C(n-k-1+j, j) * C(k+m-j, k) / C(n+m, n)      (2: either may be the lower one)
//
// So p is never less than LeastChanceApart(): 1 in 10 of three values each, 1 in 462 of six, 1 in 92,378 of ten.
double ChanceApart(std::vector<double> some, std::vector<double> others);
// Of n values each, none of which lies among the others: 2 / C(2n, n).
double LeastChanceApart(size_t n);

// The least value that at least a part q of them do not exceed; of none there is none.
std::optional<double> Quantile(std::vector<double> values, double q);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STATISTICS_H_
