// SPDX-License-Identifier: Apache-2.0
// The fixture for tests of the layer `work`: the simulated driver on its virtual clock, an engine, tenants that call the driver
// through the layer, and the simulator's own account of what each tenant used.
#ifndef GPUSHARE_TESTS_CONTRACT_WORK_BED_H_
#define GPUSHARE_TESTS_CONTRACT_WORK_BED_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/driver.h"
#include "gate/engine.h"
#include "tests/support/sim_control.h"
#include "work/calls.h"

namespace gpushare::work {

#define ASSERT_CU(call) ASSERT_EQ(CUDA_SUCCESS, (call))
#define EXPECT_CU(call) EXPECT_EQ(CUDA_SUCCESS, (call))

inline constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns)
{
  ret;
}
)";

inline double Ms(Nanos n) { return static_cast<double>(n.count()) * 1e-6; }

// One tenant: its gate, and its own stream, which the simulator counts on a separate account.
struct Tenant {
  gate::Gate* gate = nullptr;
  Gates gates;
  CUstream stream = nullptr;
  uint32_t account = 0;
  Payer payer() const { return {.gates = &gates}; }
};

class WorkTest : public ::testing::Test {
 protected:
  // A copy of 10 MB takes 100 us within the device, and 1 ms to or from it.
  virtual std::string config() const {
    return "sms=100,overlap=serial,clock=virtual,memory=4GiB,h2d=10GB/s,d2h=10GB/s,d2d=100GB/s";
  }
  virtual gate::EngineOptions options() const {
    gate::EngineOptions options;
    options.sm_count = 100;
    return options;
  }

  // The driver, which stays loaded until the program ends; null if it cannot be opened.
  static driver::Driver* OpenedOnce() {
    static driver::Driver* const opened = [] {
      auto driver = driver::Driver::Open({.path = "sim"});
      return driver.ok() ? driver->release() : nullptr;
    }();
    return opened;
  }

  void SetUp() override {
    driver_ = OpenedOnce();
    ASSERT_NE(driver_, nullptr);
    cu_ = &driver_->table();
    sim_ = std::make_unique<gpushare::testing::SimControl>(*driver_);
    const absl::Status fresh = sim_->Restart(*driver_, config());
    ASSERT_TRUE(fresh.ok()) << fresh;
    sim_->thread_enter("test");
    ASSERT_CU(cu_->DevicePrimaryCtxRetain(&context_, 0));
    ASSERT_CU(cu_->CtxPushCurrent(context_));
    ASSERT_CU(cu_->ModuleLoadData(&module_, kPtx));
    ASSERT_CU(cu_->ModuleGetFunction(&spin_, module_, "spin"));
    auto engine = gate::Engine::Create(*driver_, context_, options());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    calls_ = std::make_unique<Calls>(*driver_);
  }
  void TearDown() override {
    for (const auto& tenant : tenants_) {
      calls_->Forget(tenant->gate);
      engine_->RemoveTenant(tenant->gate);
    }
    tenants_.clear();
    calls_.reset();
    engine_.reset();
    CUcontext popped = nullptr;
    cu_->CtxPopCurrent(&popped);
    cu_->DevicePrimaryCtxRelease(0);
    sim_->thread_leave();
  }

  Tenant& Add(const gate::TenantOptions& options) {
    tenants_.push_back(std::make_unique<Tenant>());
    Tenant& tenant = *tenants_.back();
    tenant.account = static_cast<uint32_t>(tenants_.size());
    tenant.gate = *engine_->AddTenant("t" + std::to_string(tenant.account), options);
    tenant.gates.on[0] = tenant.gate;
    tenant.stream = NewStream(tenant);
    return tenant;
  }
  Tenant& Weighing(double weight) { return Add({.limits = {.weight = weight}}); }
  CUstream NewStream(const Tenant& tenant) {
    CUstream stream = nullptr;
    EXPECT_CU(cu_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    EXPECT_EQ(sim_->set_account(stream, tenant.account), 0);
    return stream;
  }

  // Launches a kernel that fills the device for `cost`.
  CUresult Spin(const Tenant& tenant, Nanos cost, CUstream stream) {
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    return calls_->LaunchKernel(tenant.payer(), spin_, 100, 1, 1, 1024, 1, 1, 0, stream, params,
                                nullptr);
  }
  CUresult Spin(const Tenant& tenant, Nanos cost) { return Spin(tenant, cost, tenant.stream); }

  base::Clock& clock() { return driver_->clock(); }
  Time In(Nanos n) { return clock().Now() + n; }
  void Rest(Nanos n = Millis(5)) { clock().SleepUntil(In(n)); }

  // Runs `body` on a thread of the virtual clock, with the test's context current.
  std::unique_ptr<base::ClockThread> Thread(std::function<void()> body) {
    return clock().StartThread("tenant", [this, body = std::move(body)] {
      cu_->CtxPushCurrent(context_);
      body();
      CUcontext popped = nullptr;
      cu_->CtxPopCurrent(&popped);
    });
  }
  // Runs each body repeatedly on its own thread. Returns the shares of the accounts 1, 2... in percent of what they used together,
  // in the last three quarters of `length`.
  std::vector<double> Shares(Nanos length, const std::vector<std::function<CUresult()>>& bodies) {
    const Time begin = clock().Now(), end = begin + length;
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    for (const auto& body : bodies) {
      threads.push_back(Thread([&body, end, this] {
        while (clock().Now() < end) ASSERT_CU(body());
      }));
    }
    clock().SleepUntil(begin + length / 4);
    std::vector<double> used;
    for (const auto& tenant : tenants_) used.push_back(-UsedMs(tenant->account));
    clock().SleepUntil(end);
    double total = 0;
    for (size_t i = 0; i < used.size(); ++i) {
      used[i] += UsedMs(tenants_[i]->account);
      total += used[i];
    }
    busy_percent_ = 100 * total / Ms(length * 3 / 4);
    for (double& share : used) share *= 100 / total;
    for (const auto& thread : threads) thread->Join();
    return used;
  }

  gpushare_sim_truth Truth(uint32_t account) const {
    gpushare_sim_truth truth{};
    EXPECT_EQ(sim_->account_truth(0, account, &truth), 0);
    return truth;
  }
  double UsedMs(uint32_t account) const { return Truth(account).used_ns * 1e-6; }
  // The device time that the gate has measured for the tenant.
  static double MeasuredMs(const Tenant& tenant) { return Ms(tenant.gate->stats().measured); }
  // A driver function that driver::Table does not have.
  template <typename F>
  F* Symbol(const char* name) const {
    return reinterpret_cast<F*>(driver_->Symbol(name));
  }
  uint64_t CallsOf(const char* name) const { return sim_->calls(name); }

  driver::Driver* driver_ = nullptr;
  const driver::Table* cu_ = nullptr;
  std::unique_ptr<gpushare::testing::SimControl> sim_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr;
  std::unique_ptr<gate::Engine> engine_;
  std::unique_ptr<Calls> calls_;
  std::vector<std::unique_ptr<Tenant>> tenants_;
  double busy_percent_ = 0;
};

}  // namespace gpushare::work

#endif  // GPUSHARE_TESTS_CONTRACT_WORK_BED_H_
