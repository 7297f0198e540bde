// SPDX-License-Identifier: Apache-2.0
// The fixture for tests below the public API: an engine on the simulated GPU's virtual clock.
#ifndef GPUSHARE_TESTS_UNIT_GATE_ENGINE_TEST_H_
#define GPUSHARE_TESTS_UNIT_GATE_ENGINE_TEST_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "driver/driver.h"
#include "gate/engine.h"
#include "tests/support/sim_control.h"

namespace gpushare::gate {

using driver::Result;

inline constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns)
{
  ret;
}
)";

class EngineTest : public ::testing::Test {
 protected:
  // Opens the driver once for the program, whatever suites use this fixture.
  static void SetUpTestSuite() {
    if (driver_ != nullptr) return;
    absl::StatusOr<std::unique_ptr<driver::Driver>> opened = driver::Driver::Open({.path = "sim"});
    ASSERT_TRUE(opened.ok()) << opened.status();
    driver_ = opened->release();
  }

  virtual std::string config() const { return "sms=100,overlap=serial,clock=virtual"; }

  void SetUp() override {
    sim_ = std::make_unique<testing::SimControl>(*driver_);
    const absl::Status restarted = sim_->Restart(*driver_, config());
    ASSERT_TRUE(restarted.ok()) << restarted;
    sim_->thread_enter("test");
    absl::StatusOr<driver::Context> context = driver_->RetainPrimaryContext(0);
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *context;
    ASSERT_EQ(driver_->PushContext(context_), Result::kSuccess);
    ASSERT_EQ(driver_->LoadModule(&module_, kPtx), Result::kSuccess);
    ASSERT_EQ(driver_->GetFunction(&function_, module_, "spin"), Result::kSuccess);
    MakeEngine({});
  }
  // Replaces the engine.
  void MakeEngine(EngineOptions options) {
    engine_.reset();
    options.sm_count = 100;
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(*driver_, context_, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  void TearDown() override {
    engine_.reset();
    driver_->PopContext();
    driver_->ReleasePrimaryContext(0);
    sim_->thread_leave();
  }

  struct Tenant {
    Gate* gate = nullptr;
    driver::Stream handle = nullptr;
    StreamGate* stream = nullptr;
  };
  Tenant Make(const TenantOptions& options, const Tenant* parent = nullptr) {
    Tenant t;
    t.gate = *engine_->AddTenant("t", options, nullptr, parent != nullptr ? parent->gate : nullptr);
    EXPECT_EQ(driver_->CreateStream(&t.handle, 0), Result::kSuccess);
    t.stream = *t.gate->AddStream(t.handle);
    return t;
  }
  void Drop(Tenant& t) {
    driver_->SynchronizeStream(t.handle);
    t.gate->RemoveStream(t.stream);
    engine_->RemoveTenant(t.gate);
    driver_->DestroyStream(t.handle);
  }
  static driver::LaunchShape Shape() { return {{100, 1, 1}, {1024, 1, 1}, 0}; }
  Verdict Launch(Tenant& t, Nanos cost, Time deadline = kNever) {
    const Admission a = t.gate->Admit(*t.stream, {KernelKey(function_, Shape())}, deadline);
    if (a.verdict != Verdict::kAdmitted) return a.verdict;
    uint64_t ns = static_cast<uint64_t>(cost.count());
    void* params[] = {&ns};
    t.gate->Complete(a, driver_->Launch(function_, Shape(), t.handle, params) == Result::kSuccess);
    return a.verdict;
  }
  void Synchronize(Tenant& t) {
    t.gate->Synchronizing(t.stream);
    driver_->SynchronizeStream(t.handle);
    t.gate->Synchronized();
  }
  // Launches kernels of 20 us until their cost is known.
  void LearnCosts(Tenant& a, Tenant& b) {
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(Launch(a, Micros(20)), Verdict::kAdmitted);
      ASSERT_EQ(Launch(b, Micros(20)), Verdict::kAdmitted);
      Synchronize(a);
      Synchronize(b);
    }
  }
  base::Clock& clock() { return driver_->clock(); }

  inline static driver::Driver* driver_ = nullptr;
  std::unique_ptr<testing::SimControl> sim_;
  driver::Context context_ = nullptr;
  driver::Module module_ = nullptr;
  driver::Function function_ = nullptr;
  std::unique_ptr<Engine> engine_;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_TESTS_UNIT_GATE_ENGINE_TEST_H_
