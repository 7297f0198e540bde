// SPDX-License-Identifier: Apache-2.0
// What tenants get over a second, on a simulated device with an exact meter.
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/sched/harness.h"

namespace gpushare::sched {
namespace {

const std::vector<Nanos> kSmall = {Micros(3),  Micros(5),  Micros(8), Micros(10), Micros(15),
                                   Micros(25), Micros(40), Micros(6)};  // 14 us on average
const std::vector<Nanos> kLarge = {Micros(800), Micros(1200), Micros(1500), Micros(600)};
const std::vector<Nanos> kMiddle = {Micros(60), Micros(90), Micros(120), Micros(200)};

// Runs for six seconds and returns the worst second's error after the first, in percentage points.
struct Outcome {
  double error = 0, busy = 0;
};
Outcome RunSixSeconds(std::vector<HarnessTenant> tenants, const std::vector<double>& shares,
                      HarnessOptions options = {}) {
  Harness h(options, std::move(tenants));
  h.RunUntil(Seconds(6));
  Outcome o{h.WorstShareError(shares, Seconds(1), Seconds(6)), h.Busy(Seconds(1), Seconds(6))};
  std::printf("  worst second %.3f pp, busy %.2f %%\n", o.error, 100 * o.busy);
  EXPECT_STREQ(h.arbiter().CheckInvariants(), "");
  return o;
}

TEST(Shares, SmallAgainstLargeKernels75To25) {
  for (uint64_t seed : {7u, 8u, 9u}) {
    HarnessOptions options;
    options.seed = seed;
    const Outcome o = RunSixSeconds({{.limits = {.weight = 3}, .kernels = kSmall},
                                     {.limits = {.weight = 1}, .kernels = kLarge}},
                                    {0.75, 0.25}, options);
    EXPECT_LE(o.error, 0.5);
    EXPECT_GE(o.busy, 0.99);
  }
}

TEST(Shares, ByGuarantee75To25) {
  const Outcome o = RunSixSeconds({{.limits = {.guarantee = 0.75}, .kernels = kSmall},
                                   {.limits = {.guarantee = 0.25}, .kernels = kLarge}},
                                  {0.75, 0.25});
  EXPECT_LE(o.error, 1.0);
  EXPECT_GE(o.busy, 0.99);
}

TEST(Shares, EqualTenants) {
  for (size_t n : {2u, 4u, 8u, 16u}) {
    const std::vector<std::vector<Nanos>> mixes = {kSmall, kLarge, kMiddle};
    std::vector<HarnessTenant> tenants;
    for (size_t i = 0; i < n; ++i) tenants.push_back({.kernels = mixes[i % 3]});
    const Outcome o = RunSixSeconds(tenants, std::vector<double>(n, 1.0 / static_cast<double>(n)));
    EXPECT_LE(o.error, 1.0) << n << " tenants";
    EXPECT_GE(o.busy, 0.99) << n << " tenants";
  }
}

TEST(Shares, MixedWeights) {
  const Outcome o = RunSixSeconds({{.limits = {.weight = 50}, .kernels = kMiddle},
                                   {.limits = {.weight = 30}, .kernels = kLarge},
                                   {.limits = {.weight = 15}, .kernels = kSmall},
                                   {.limits = {.weight = 5}, .kernels = kMiddle}},
                                  {0.5, 0.3, 0.15, 0.05});
  EXPECT_LE(o.error, 1.0);
  EXPECT_GE(o.busy, 0.99);
}

}  // namespace
}  // namespace gpushare::sched
