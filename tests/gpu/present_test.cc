// SPDX-License-Identifier: Apache-2.0
// Every other test in this folder is skipped without a GPU. This one fails if a GPU is required, so that "all
// skipped" cannot be mistaken for "all passed".
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "gpushare/gpu.h"
#include "gpushare/runtime.h"

namespace gpushare::gpu_test {
namespace {

bool Required() {
  const char* value = std::getenv("GPUSHARE_REQUIRE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

TEST(GpuPresent, ThereIsOne) {
  const absl::StatusOr<Runtime> runtime = Runtime::Create();
  if (!runtime.ok() && !Required()) GTEST_SKIP() << runtime.status();
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const absl::StatusOr<RuntimeInfo> info = runtime->info();
  ASSERT_TRUE(info.ok()) << info.status();
  if (Required()) {
    ASSERT_FALSE(info->simulated) << "GPUSHARE_REQUIRE_GPU=1 asks for a real GPU, and "
                                  << info->driver_path << " is the simulated one";
  }
  const absl::StatusOr<GpuProbe> probe = Gpu::Probe(*runtime);
  ASSERT_TRUE(probe.ok()) << probe.status();
  if (probe->state == GpuProbe::State::kAbsent && !Required()) GTEST_SKIP() << probe->reason;
  EXPECT_EQ(probe->state, GpuProbe::State::kHealthy) << probe->reason;
  EXPECT_GT(probe->sm_count, 0);
  EXPECT_GT(probe->memory_total.count(), 0u);
}

}  // namespace
}  // namespace gpushare::gpu_test
