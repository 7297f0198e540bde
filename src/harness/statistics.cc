// SPDX-License-Identifier: Apache-2.0
#include "harness/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace gpushare::harness {
namespace {

// The probability that at most k of n values lie below the median, for increasing k.
class AtMost {
 public:
  explicit AtMost(size_t n) : n_(n), log_term_(-std::log(2.0) * static_cast<double>(n)) {
    probability_ = std::exp(log_term_);
  }
  double probability() const { return probability_; }
  void Next() {
    // Uses logarithms, since 0.5^n underflows for n above a thousand.
    log_term_ += std::log(static_cast<double>(n_ - k_) / static_cast<double>(k_ + 1));
    ++k_;
    probability_ += std::exp(log_term_);
  }

 private:
  size_t n_;
  size_t k_ = 0;
  double log_term_, probability_;
};

double LogChoose(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

// The one-sided probability, by the header's formula.
double ChanceBelow(size_t n_of_lower, size_t n_of_upper, size_t k_ends) {
  const auto n = static_cast<double>(n_of_lower), m = static_cast<double>(n_of_upper),
             k = static_cast<double>(k_ends);
  double sum = 0;
  for (size_t i = 0; i <= k_ends; ++i) {
    const auto j = static_cast<double>(i);
    sum += std::exp(LogChoose(n - k - 1 + j, j) + LogChoose(k + m - j, k) - LogChoose(n + m, n));
  }
  return sum;
}

}  // namespace

Median MedianOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  Median median;
  median.n = n;
  median.value = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  size_t k = 0;  // number of values left out at each end
  AtMost here(n), next(n);
  for (next.Next(); 2 * (k + 1) < n && 1 - 2 * next.probability() >= 0.95; ++k) {
    here = next;
    next.Next();
  }
  median.low = values[k];
  median.high = values[n - 1 - k];
  median.confidence = std::max(0.0, 1 - 2 * here.probability());
  return median;
}

double ChanceApart(std::vector<double> some, std::vector<double> others) {
  if (some.empty() || others.empty()) return 1;
  std::sort(some.begin(), some.end());
  std::sort(others.begin(), others.end());
  const double apart = MedianOf(some).value - MedianOf(others).value;
  if (apart == 0) return 1;
  const std::vector<double>& lower = apart < 0 ? some : others;
  const std::vector<double>& upper = apart < 0 ? others : some;
  for (size_t k = 0; k < std::min(lower.size(), upper.size()); ++k) {
    if (lower[lower.size() - 1 - k] >= upper[k]) continue;
    return std::min(1.0, 2 * ChanceBelow(lower.size(), upper.size(), k));
  }
  return 1;
}

double LeastChanceApart(size_t n) { return n == 0 ? 1 : std::min(1.0, 2 * ChanceBelow(n, n, 0)); }

std::optional<double> Quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::nullopt;
  const double rank = std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(values.size()));
  const auto at = static_cast<std::ptrdiff_t>(std::max(1.0, rank)) - 1;
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

}  // namespace gpushare::harness
