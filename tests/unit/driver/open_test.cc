// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "driver/driver.h"
#include "driver/errors.h"
#include "driver/locate.h"

namespace gpushare::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Sets a variable for the duration of a test; null unsets it.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    had_ = old != nullptr;
    if (had_) old_ = old;
    Set(value);
  }
  ~ScopedEnv() { Set(had_ ? old_.c_str() : nullptr); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  void Set(const char* value) {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }
  const char* name_;
  std::string old_;
  bool had_;
};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(Open, WithoutADriverSaysHowToAskForTheSimulatedGpu) {
  const auto driver = Driver::Open({.path = "/nonexistent/libcuda.so.1"});
  ASSERT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(driver.status()),
              AllOf(HasSubstr("/nonexistent/libcuda.so.1"), HasSubstr("simulated GPU"),
                    HasSubstr("GPUSHARE_DRIVER=sim")));
  // The library has no command line.
  EXPECT_THAT(Message(driver.status()), Not(HasSubstr("--gpu")));
}

TEST(Open, TakesTheDriverFromTheEnvironment) {
  const ScopedEnv driver_env("GPUSHARE_DRIVER", "/nonexistent/env/libcuda.so.1");
  const auto driver = Driver::Open({});
  EXPECT_THAT(Message(driver.status()), HasSubstr("/nonexistent/env/libcuda.so.1"));
  // The option takes precedence over it.
  EXPECT_THAT(Message(Driver::Open({.path = "/nonexistent/option"}).status()),
              HasSubstr("/nonexistent/option"));
}

TEST(Open, NamesThePlacesWhereTheSimulatedGpuWasNot) {
  const ScopedEnv sim("GPUSHARE_SIM_DRIVER", "/nonexistent/sim/libcuda.so.1");
  const auto driver = Driver::Open({.path = "sim"});
  ASSERT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(driver.status()),
              AllOf(HasSubstr("/nonexistent/sim/libcuda.so.1"), HasSubstr("GPUSHARE_SIM_DRIVER"),
                    Not(HasSubstr("GPUSHARE_DRIVER=sim"))));
}

TEST(Open, ASimulatedGpuThatIsBrokenIsNotAdvisedAgain) {
  const ScopedEnv sim("GPUSHARE_SIM_DRIVER", "/dev/null");
  const ScopedEnv driver_env("GPUSHARE_DRIVER", "sim");
  const auto driver = Driver::Open({});
  ASSERT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(driver.status()), AllOf(HasSubstr("simulated GPU at '/dev/null'"),
                                              Not(HasSubstr("GPUSHARE_DRIVER=sim"))));
}

TEST(Locate, LooksBesideThisObjectFirst) {
  const ScopedEnv sim("GPUSHARE_SIM_DRIVER", nullptr);
  const auto places = SimulatedDriverPlaces();
  ASSERT_GE(places.size(), 3u);
  EXPECT_THAT(places[0], HasSubstr("/gpushare/sim/libcuda.so.1"));
  EXPECT_EQ(places[0].front(), '/');
}

TEST(Open, AsksTheDriverByNameAndVersionBeforeDlsym) {
  const auto driver = Driver::Open({.path = GPUSHARE_FAKE_MODERN});
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_EQ((*driver)->version(), 13000);
  EXPECT_FALSE((*driver)->simulated());
  EXPECT_EQ((*driver)->path(), GPUSHARE_FAKE_MODERN);
  EXPECT_EQ(&(*driver)->clock(), &base::RealClock());
  DevicePtr pointer = 0;
  // The second ABI: neither the first one, nor one newer than the type, nor the symbol that dlsym() finds.
  EXPECT_EQ((*driver)->MemAlloc(&pointer, 1), Result{1002});
  // Not the variant for the per-thread default stream.
  EXPECT_EQ((*driver)->SetD8Async(0, 0, 0, nullptr), Result{1002});
}

TEST(Open, AnOptionalCallThatTheDriverLacksIsNotSupported) {
  const auto driver = Driver::Open({.path = GPUSHARE_FAKE_MODERN});
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_EQ((*driver)->LaunchGraph(nullptr, nullptr), Result::kNotSupported);
}

TEST(Open, FallsBackToDlsymAndToOlderAbis) {
  const auto driver = Driver::Open({.path = GPUSHARE_FAKE_OLD});
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_EQ((*driver)->version(), 11000);
  DevicePtr pointer = 0;
  EXPECT_EQ((*driver)->MemAlloc(&pointer, 1), Result{1002});
  float ms = 0;
  EXPECT_EQ((*driver)->ElapsedMs(&ms, nullptr, nullptr), Result{1006});
  EXPECT_EQ((*driver)->ReleasePrimaryContext(0), Result{1005});
  EXPECT_EQ((*driver)->QueryEvent(nullptr), Result::kNotReady);
  Graph graph = nullptr;
  EXPECT_EQ((*driver)->EndCapture(nullptr, &graph), Result::kNotSupported);
  EXPECT_EQ((*driver)->Symbol("cuNoSuchCall"), nullptr);
  EXPECT_NE((*driver)->Symbol("cuInit"), nullptr);
}

TEST(Open, ADriverThatLacksARequiredCallIsUnusable) {
  const auto driver = Driver::Open({.path = GPUSHARE_FAKE_BROKEN});
  ASSERT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(driver.status()),
              AllOf(HasSubstr("cuLaunchKernel"), HasSubstr("GPUSHARE_DRIVER=sim")));
  EXPECT_THAT(Message(driver.status()), Not(HasSubstr("cuMemAlloc")));
}

TEST(Open, ADriverWithoutADeviceSaysSo) {
  const auto driver = Driver::Open({.path = GPUSHARE_FAKE_NO_DEVICE});
  ASSERT_EQ(driver.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(driver.status()),
              AllOf(HasSubstr("CUDA_ERROR_NO_DEVICE"), HasSubstr("GPUSHARE_DRIVER=sim")));
  EXPECT_EQ(FromStatus(driver.status()),
            Result{100});  // not the code for everything that is unavailable
}

TEST(Open, ASimulationIsNotForARealDriver) {
  const auto driver = Driver::Open({.path = GPUSHARE_FAKE_OLD, .simulation = "sms=4"});
  ASSERT_EQ(driver.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(driver.status()), HasSubstr("sms=4"));
}

}  // namespace
}  // namespace gpushare::driver
