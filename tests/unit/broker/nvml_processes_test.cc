// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

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

}  // namespace
}  // namespace gpushare::broker
