// SPDX-License-Identifier: Apache-2.0
#include "workload/arrivals.h"

#include <algorithm>
#include <cmath>

namespace gpushare::workload {

Nanos PoissonGap(double per_second, std::mt19937_64& engine) {
  // Written out because std::exponential_distribution may differ between standard libraries.
  const double uniform = static_cast<double>(engine() >> 11) * 0x1p-53;  // [0, 1)
  const double gap_ns = -std::log1p(-uniform) / per_second * 1e9;
  constexpr double kLongest = 1e18;  // far beyond any run, and still within an int64_t
  return Nanos(std::max<int64_t>(1, static_cast<int64_t>(std::min(gap_ns, kLongest))));
}

std::vector<Nanos> PoissonArrivals(double per_second, Nanos horizon, std::mt19937_64& engine) {
  std::vector<Nanos> arrivals;
  if (!(per_second > 0)) return arrivals;
  for (Nanos at = PoissonGap(per_second, engine); at < horizon;
       at += PoissonGap(per_second, engine)) {
    arrivals.push_back(at);
  }
  return arrivals;
}

}  // namespace gpushare::workload
