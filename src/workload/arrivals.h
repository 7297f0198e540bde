// SPDX-License-Identifier: Apache-2.0
// The arrival times of requests to an open-loop service: a Poisson process. Open-loop means that requests arrive whether or not
// earlier ones have been answered.
//
//   std::mt19937_64 engine(seed);
//   std::vector<Nanos> at = PoissonArrivals(/*per_second=*/80, Seconds(20), engine);
//
// The same engine state gives the same arrivals on every machine with IEEE doubles.
#ifndef GPUSHARE_WORKLOAD_ARRIVALS_H_
#define GPUSHARE_WORKLOAD_ARRIVALS_H_

#include <random>
#include <vector>

#include "base/time.h"

namespace gpushare::workload {

// One gap between arrivals: exponential with mean 1 / per_second, at least 1 ns. `per_second` > 0.
Nanos PoissonGap(double per_second, std::mt19937_64& engine);

// The arrivals from 0 up to but excluding `horizon`, ascending. Empty when per_second is not positive.
std::vector<Nanos> PoissonArrivals(double per_second, Nanos horizon, std::mt19937_64& engine);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_ARRIVALS_H_
