// SPDX-License-Identifier: Apache-2.0
// Extends the fixture of the layer `work` by a second GPU: one engine for each GPU, and tenants with a share of both.
#ifndef GPUSHARE_TESTS_CONTRACT_WORK_DEVICES_BED_H_
#define GPUSHARE_TESTS_CONTRACT_WORK_DEVICES_BED_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/contract/work_bed.h"

namespace gpushare::work {

class TwoGpusTest : public WorkTest {
 protected:
  std::string config() const override { return WorkTest::config() + ",devices=2"; }
  void SetUp() override {
    WorkTest::SetUp();
    ASSERT_CU(cu_->DevicePrimaryCtxRetain(&other_, 1));
    ASSERT_CU(cu_->CtxPushCurrent(other_));
    CUmodule module = nullptr;
    ASSERT_CU(cu_->ModuleLoadData(&module, kPtx));
    ASSERT_CU(cu_->ModuleGetFunction(&other_spin_, module, "spin"));
    CUcontext popped = nullptr;
    ASSERT_CU(cu_->CtxPopCurrent(&popped));
    auto engine = gate::Engine::Create(*driver_, other_, options());
    ASSERT_TRUE(engine.ok()) << engine.status();
    second_ = *std::move(engine);
  }
  void TearDown() override {
    for (const auto& tenant : tenants_) {
      gate::Gate* const there = There(*tenant);
      if (there == nullptr) continue;
      calls_->Forget(there);
      second_->RemoveTenant(there);
      tenant->gates.on[1] = nullptr;
    }
    second_.reset();
    cu_->DevicePrimaryCtxRelease(1);
    WorkTest::TearDown();
  }

  static gate::Gate* There(const Tenant& tenant) { return tenant.gates.on[1]; }
  Tenant& AddOnBoth(const gate::TenantOptions& here, const gate::TenantOptions& there) {
    Tenant& tenant = Add(here);
    tenant.gates.on[1] = *second_->AddTenant("t" + std::to_string(tenant.account), there);
    EXPECT_CU(cu_->CtxPushCurrent(other_));
    streams_[&tenant] = NewStream(tenant);
    CUcontext popped = nullptr;
    EXPECT_CU(cu_->CtxPopCurrent(&popped));
    return tenant;
  }

  CUcontext other_ = nullptr;
  CUfunction other_spin_ = nullptr;
  std::map<const Tenant*, CUstream> streams_;  // on the second device
  std::unique_ptr<gate::Engine> second_;
};

}  // namespace gpushare::work

#endif  // GPUSHARE_TESTS_CONTRACT_WORK_DEVICES_BED_H_
