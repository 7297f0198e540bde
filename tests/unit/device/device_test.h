// SPDX-License-Identifier: Apache-2.0
// The fixture for tests through the public API alone: a runtime on the simulated GPU's virtual clock.
#ifndef GPUSHARE_TESTS_UNIT_DEVICE_DEVICE_TEST_H_
#define GPUSHARE_TESTS_UNIT_DEVICE_DEVICE_TEST_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/lease.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/snapshot.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/testing/sim.h"
#include "gpushare/virtual_device.h"
#include "tests/support/must.h"

namespace gpushare {

inline constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns)
{
  ret;
}
)";

#define ASSERT_OK(expr)                               \
  do {                                                \
    const absl::Status assert_status = (expr);        \
    ASSERT_TRUE(assert_status.ok()) << assert_status; \
  } while (false)
#define EXPECT_OK(expr)                               \
  do {                                                \
    const absl::Status expect_status = (expr);        \
    EXPECT_TRUE(expect_status.ok()) << expect_status; \
  } while (false)

class DeviceTest : public ::testing::Test {
 protected:
  // 8 GiB of memory, of which 1 GiB is reserved, so that 7 GiB can be promised.
  virtual std::string config() const {
    return "sms=100,memory=8GiB,overlap=serial,clock=virtual,devices=2,h2d=10GB/s,d2h=10GB/s";
  }

  void SetUp() override {
    runtime_.emplace(
        Must(Runtime::Create({.driver = "sim", .simulation = config(), .memory_reserve = GiB(1)})));
    reset_ = runtime_->Symbol<decltype(gpushare_sim_reset)>("gpushare_sim_reset");
    leave_ = runtime_->Symbol<decltype(gpushare_sim_thread_leave)>("gpushare_sim_thread_leave");
    calls_ = runtime_->Symbol<decltype(gpushare_sim_calls)>("gpushare_sim_calls");
    used_ = runtime_->Symbol<decltype(gpushare_sim_memory_used)>("gpushare_sim_memory_used");
    inject_ = runtime_->Symbol<decltype(gpushare_sim_inject)>("gpushare_sim_inject");
    truth_ = runtime_->Symbol<decltype(gpushare_sim_account_truth)>("gpushare_sim_account_truth");
    account_ = runtime_->Symbol<decltype(gpushare_sim_set_account)>("gpushare_sim_set_account");
    runtime_->Symbol<decltype(gpushare_sim_thread_enter)>("gpushare_sim_thread_enter")("test");
    gpu_.emplace(Must(Gpu::Open(*runtime_, "0")));
  }

  void TearDown() override {
    gpu_.reset();
    runtime_.reset();
    leave_();
    EXPECT_EQ(reset_(), 0);
  }

  Tenant MakeTenant(const std::string& name) {
    return Must(Tenant::Create(*runtime_, {.name = name}));
  }
  VirtualDevice MakeDevice(const std::string& name, std::string_view spec) {
    const Tenant tenant = MakeTenant(name);  // the virtual device keeps the tenant alive
    return Must(VirtualDevice::Create(*gpu_, tenant, spec));
  }
  absl::Status Inject(const std::string& what) {
    char error[256] = "";
    return inject_(what.c_str(), error, sizeof(error)) == 0 ? absl::OkStatus()
                                                            : absl::InvalidArgumentError(error);
  }
  uint64_t Calls(const char* name) const { return calls_(name); }
  uint64_t UsedOnDevice() const { return used_(0); }
  static LaunchShape Whole() { return {.grid = {100}, .block = {1024}}; }

  std::optional<Runtime> runtime_;
  std::optional<Gpu> gpu_;
  decltype(&gpushare_sim_reset) reset_ = nullptr;
  decltype(&gpushare_sim_thread_leave) leave_ = nullptr;
  decltype(&gpushare_sim_calls) calls_ = nullptr;
  decltype(&gpushare_sim_memory_used) used_ = nullptr;
  decltype(&gpushare_sim_inject) inject_ = nullptr;
  decltype(&gpushare_sim_account_truth) truth_ = nullptr;
  decltype(&gpushare_sim_set_account) account_ = nullptr;
};

// Adds a stream, and a kernel with a given run time.
class StreamTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    module_.emplace(Must(Module::Load(*gpu_, kPtx)));
    spin_ = Must(module_->GetFunction("spin"));
  }
  void TearDown() override {
    module_.reset();
    DeviceTest::TearDown();
  }
  absl::Status Spin(const Stream& stream, absl::Duration cost) const {
    return stream.Launch(spin_, Whole(), static_cast<uint64_t>(absl::ToInt64Nanoseconds(cost)));
  }

  std::optional<Module> module_;
  Function spin_;
};

}  // namespace gpushare

#endif  // GPUSHARE_TESTS_UNIT_DEVICE_DEVICE_TEST_H_
