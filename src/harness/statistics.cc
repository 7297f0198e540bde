// SPDX-License-Identifier: Apache-2.0
#include "harness/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace gpushare::harness {
namespace {

// How probable it is that at most k of n values lie below the median.
double AtMost(size_t k, size_t n) {
  double term = std::pow(0.5, static_cast<double>(n)), sum = term;
  for (size_t i = 1; i <= k; ++i) {
    term *= static_cast<double>(n - i + 1) / static_cast<double>(i);
    sum += term;
  }
  return sum;
}

}  // namespace

Median MedianOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  Median median;
  median.value = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  size_t k = 0;  // as many are left out at each end
  while (2 * (k + 1) < n && 1 - 2 * AtMost(k + 1, n) >= 0.95) ++k;
  median.low = values[k];
  median.high = values[n - 1 - k];
  median.confidence = std::max(0.0, 1 - 2 * AtMost(k, n));
  return median;
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const double rank = std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(values.size()));
  const auto at = static_cast<std::ptrdiff_t>(std::max(1.0, rank)) - 1;
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

}  // namespace gpushare::harness
