// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "gpushare/spec.h"

namespace gpushare::cli {
namespace {

GpuProbe H200() {
  GpuProbe gpu;
  gpu.name = "Simulated H200";
  gpu.sm_count = 132;
  gpu.memory_total = GiB(141);
  return gpu;
}

TEST(ScenarioTest, FourTenantsWithValidSpecsUnderEveryPolicy) {
  for (const std::string& policy : PolicyNames()) {
    DemoOptions options;
    options.policy = policy;
    const auto scenario = MakeScenario(options, H200());
    ASSERT_TRUE(scenario.ok()) << scenario.status();
    ASSERT_EQ(scenario->tenants.size(), 4u);
    double shares = 0;
    for (const TenantPlan& tenant : scenario->tenants) {
      const auto spec = VirtualDeviceSpec::Parse(tenant.spec);
      ASSERT_TRUE(spec.ok()) << policy << ", " << tenant.name << ": " << spec.status();
      EXPECT_TRUE(spec->Validate().ok()) << spec->Validate();
      EXPECT_FALSE(tenant.trace.empty());
      shares += spec->compute.value_or(Share()).fraction();
    }
    const bool promises = VirtualDeviceSpec::Parse("compute=10%,policy=" + policy).ok();
    EXPECT_DOUBLE_EQ(shares, promises ? 0.8 : 0) << policy;
  }
}

TEST(ScenarioTest, TheServicesLoadIsWhatWasAsked) {
  DemoOptions options;
  options.seconds = 200;
  options.load = 0.2;
  const auto scenario = MakeScenario(options, H200());
  ASSERT_TRUE(scenario.ok());
  const TenantPlan& service = scenario->tenants[0];
  const double busy_s = static_cast<double>(workload::Summarize(service.trace).total.count()) /
                        1e9 * static_cast<double>(service.arrivals.size());
  EXPECT_NEAR(busy_s / 200, 0.2,
              0.02 * 0.2);  // more than 100,000 arrivals, so 2 % are six standard deviations
}

TEST(ScenarioTest, OneLeavesAndComesBack) {
  const auto scenario = MakeScenario({}, H200());
  ASSERT_TRUE(scenario.ok());
  EXPECT_EQ(scenario->leaves, Seconds(8));
  EXPECT_EQ(scenario->returns, Seconds(12));
  const TenantPlan& leaver = scenario->tenants[scenario->leaver];
  ASSERT_EQ(leaver.absences.size(), 1u);
  EXPECT_EQ(leaver.absences[0].from, Seconds(8));
}

TEST(ScenarioTest, SmallerGpusGetSlowerKernels) {
  GpuProbe v100 = H200();
  v100.name = "Tesla V100-SXM2-16GB";
  v100.sm_count = 80;
  const auto fast = MakeScenario({}, H200()), slow = MakeScenario({}, v100);
  ASSERT_TRUE(fast.ok() && slow.ok());
  EXPECT_GT(workload::Summarize(slow->tenants[1].trace).total,
            3 * workload::Summarize(fast->tenants[1].trace).total);
}

class ScenarioOfATraceTest : public ::testing::Test {
 protected:
  ~ScenarioOfATraceTest() override { std::remove(path_.c_str()); }

  // A scenario file with `kernels` after the header.
  DemoOptions Of(const std::string& kernels) {
    std::ofstream(path_) << "kernel,bound,sms,duration_ns\n" << kernels;
    DemoOptions options;
    options.traces = {path_};
    return options;
  }
  // Test cases run in parallel processes.
  const std::string path_ =
      ::testing::TempDir() + "/scenario_test." + std::to_string(getpid()) + ".csv";
};

// It would take 10^8 requests a second, each with a launch.
TEST_F(ScenarioOfATraceTest, ARequestTooShortForItsLoadIsAnError) {
  DemoOptions options = Of("a,memory,1,1\n");
  const auto scenario = MakeScenario(options, H200());
  EXPECT_EQ(scenario.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(scenario.status().message()),
              ::testing::HasSubstr("100000000 requests a second, more than a host can launch"));

  options = Of("a,memory,1,20000\n");
  EXPECT_TRUE(MakeScenario(options, H200()).ok());
  options.seconds = 3600;
  const auto long_run = MakeScenario(options, H200());
  EXPECT_THAT(std::string(long_run.status().message()), ::testing::HasSubstr("10 million"));
}

TEST_F(ScenarioOfATraceTest, TooManyNamesAreAnErrorOfTheFile) {
  std::string kernels;
  for (int i = 0; i <= 10'000; ++i) kernels += "k" + std::to_string(i) + ",memory,1,50000\n";
  const auto scenario = MakeScenario(Of(kernels), H200());
  EXPECT_EQ(scenario.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(scenario.status().message()), ::testing::HasSubstr("10001 distinct"));
}

TEST(ScenarioTest, MissingTracesAreErrors) {
  DemoOptions options;
  options.traces = {"/nonexistent/trace.csv"};
  EXPECT_EQ(MakeScenario(options, H200()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gpushare::cli
