// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "broker/nvml.h"

namespace gpushare::broker {
namespace {

TEST(BrokerNvml, ReadsTheListWhoseStructIsWhatItsNameSays) {
  ASSERT_EQ(setenv("GPUSHARE_NVML", NVML_OF_535, 1), 0);
  const auto nvml = driver::Nvml::Open("");
  unsetenv("GPUSHARE_NVML");
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto counts = Count(**nvml, {"GPU-1"});
  ASSERT_TRUE(counts.ok()) << counts.status();
  const Counts wanted = {{{"GPU-1", 1000000}, uint64_t{1} << 30},
                         {{"GPU-1", 1000001}, uint64_t{2} << 30},
                         {{"GPU-1", 1000002}, std::nullopt}};
  ASSERT_EQ(counts->size(), wanted.size());
  for (const auto& [process, bytes] : wanted) EXPECT_EQ(counts->at(process), bytes) << process.pid;
}

TEST(BrokerNvml, TellsHowBusyProcessesKeepAGpuWhereThatIsKnown) {
  ASSERT_EQ(setenv("GPUSHARE_NVML", NVML_OF_535, 1), 0);
  const auto nvml = driver::Nvml::Open("");
  unsetenv("GPUSHARE_NVML");
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto ran =
      Sample(**nvml, {{"GPU-1", 1000}, {"GPU-IDLE", 5}, {"GPU-MIG", 0}, {"GPU-MPS", 0}});
  ASSERT_TRUE(ran.ok()) << ran.status();
  ASSERT_EQ(ran->size(), 2u) << "of a part of a GPU and under MPS nothing is known";
  EXPECT_TRUE(ran->at("GPU-IDLE").empty());
  const std::vector<RanSample>& samples = ran->at("GPU-1");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].pid, 1000000);
  EXPECT_EQ(samples[0].until_us, 1500u);
  EXPECT_EQ(samples[0].percent, 40u);
  EXPECT_EQ(samples[1].pid, 1000003);
  EXPECT_EQ(samples[1].until_us, 1700u);
  EXPECT_EQ(samples[1].percent, 100u);
}

}  // namespace
}  // namespace gpushare::broker
