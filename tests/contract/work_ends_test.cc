// SPDX-License-Identifier: Apache-2.0
// Contexts that end: the work that ran in them is charged all the same.
#include <utility>

#include "tests/contract/work_bed.h"

namespace gpushare::work {
namespace {

class EndsTest : public WorkTest {
 protected:
  // Creates a context beside the fixture's, leaves it current, and loads the kernel in it.
  void MakeContext(CUcontext* made, CUfunction* spin) {
    auto* const create = Symbol<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
    ASSERT_CU(create(made, 0, 0));
    CUmodule module = nullptr;
    ASSERT_CU(cu_->ModuleLoadData(&module, kPtx));
    ASSERT_CU(cu_->ModuleGetFunction(spin, module, "spin"));
  }
  CUresult End(CUcontext context) {
    return calls_->ContextEnds(context, [&] { return cu_->CtxDestroy(context); });
  }
  CUresult Reset(const Tenant& t) {
    return calls_->PrimaryContextEnds(t.payer(), 0, [&] { return cu_->DevicePrimaryCtxReset(0); });
  }
};

// The kernel is a new one every time, so only the measurement at the end shows how long it takes.
TEST_F(EndsTest, AProgramThatEndsItsContextAfterEveryKernelKeepsToItsCap) {
  const Tenant& t = Add({.limits = {.cap = 0.1}});
  for (const Nanos cost : {Micros(200), Millis(5), Millis(20)}) {
    const double used = UsedMs(t.account), measured = MeasuredMs(t);
    const Time began = clock().Now();
    while (clock().Now() - began < Seconds(1)) {
      CUcontext other = nullptr;
      CUfunction spin = nullptr;
      ASSERT_NO_FATAL_FAILURE(MakeContext(&other, &spin));
      std::swap(spin, spin_);
      sim_->set_account(nullptr, t.account);
      ASSERT_CU(Spin(t, cost, nullptr));
      ASSERT_CU(calls_->CtxSynchronize(t.payer()));
      std::swap(spin, spin_);
      ASSERT_CU(End(other));
    }
    const double share = (UsedMs(t.account) - used) / Ms(clock().Now() - began);
    EXPECT_NEAR(share, 0.1, 0.005 + Ms(cost) / 1000) << Ms(cost) << " ms";
    EXPECT_NEAR(MeasuredMs(t) - measured, UsedMs(t.account) - used,
                0.02 * (UsedMs(t.account) - used));
  }
}

TEST_F(EndsTest, AProgramThatResetsThePrimaryContextAfterEveryKernelKeepsToItsCap) {
  Tenant& t = Add({.limits = {.cap = 0.1}});
  const double used = UsedMs(t.account), measured = MeasuredMs(t);
  const Time began = clock().Now();
  while (clock().Now() - began < Seconds(1)) {
    ASSERT_CU(Reset(t));
    CUcontext again = nullptr;
    ASSERT_CU(cu_->DevicePrimaryCtxRetain(&again, 0));
    ASSERT_CU(cu_->ModuleLoadData(&module_, kPtx));
    ASSERT_CU(cu_->ModuleGetFunction(&spin_, module_, "spin"));
    sim_->set_account(nullptr, t.account);
    ASSERT_CU(Spin(t, Millis(5), nullptr));
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  }
  EXPECT_NEAR((UsedMs(t.account) - used) / Ms(clock().Now() - began), 0.1, 0.01);
  Rest();
  EXPECT_NEAR(MeasuredMs(t) - measured, UsedMs(t.account) - used,
              0.02 * (UsedMs(t.account) - used));
  for (int i = 0; i < 400; ++i) cu_->DevicePrimaryCtxRelease(0);
}

// The driver aborts running work; it had the device until then.
TEST_F(EndsTest, WhatItsContextCutsOffIsChargedForAsLongAsItRan) {
  const Tenant& t = Weighing(1);
  for (const bool primary : {false, true}) {
    const double used = UsedMs(t.account), measured = MeasuredMs(t);
    CUcontext other = nullptr;
    CUfunction spin = spin_;
    if (!primary) {
      ASSERT_NO_FATAL_FAILURE(MakeContext(&other, &spin));
    }
    std::swap(spin, spin_);
    const CUstream stream = NewStream(t);
    ASSERT_CU(Spin(t, Millis(50), stream));
    ASSERT_CU(Spin(t, Millis(50), stream));
    std::swap(spin, spin_);
    Rest(Millis(8));
    ASSERT_CU(primary ? Reset(t) : End(other));
    EXPECT_NEAR(UsedMs(t.account) - used, 8, 0.2);
    EXPECT_NEAR(MeasuredMs(t) - measured, 8, 0.2);
    EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
  }
}

// The engine's own context is gone: there are no timestamps, but the driver still says when the work of other
// contexts is over.
TEST_F(EndsTest, WithoutThePrimaryContextWorkIsChargedForTheTimeUntilItIsSeenToBeOver) {
  const Tenant& t = Add({.limits = {.cap = 0.1}});
  ASSERT_CU(Reset(t));
  const Time began = clock().Now();
  while (clock().Now() - began < Seconds(1)) {
    CUcontext other = nullptr;
    CUfunction spin = nullptr;
    ASSERT_NO_FATAL_FAILURE(MakeContext(&other, &spin));
    std::swap(spin, spin_);
    sim_->set_account(nullptr, t.account);
    ASSERT_CU(Spin(t, Millis(5), nullptr));
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    std::swap(spin, spin_);
    ASSERT_CU(End(other));
  }
  EXPECT_NEAR(UsedMs(t.account) / Ms(clock().Now() - began), 0.1, 0.015);
  CUcontext again = nullptr;
  ASSERT_CU(cu_->DevicePrimaryCtxRetain(&again, 0));
}

// While any stream captures, the driver is asked about each launch.
TEST_F(EndsTest, WhatIsCapturedInAContextThatEndsIsCapturedNoMore) {
  const Tenant& t = Weighing(1);
  CUcontext other = nullptr;
  CUfunction spin = nullptr;
  ASSERT_NO_FATAL_FAILURE(MakeContext(&other, &spin));
  const CUstream stream = NewStream(t);
  ASSERT_CU(calls_->StreamBeginCapture(
      stream, [&] { return cu_->StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED); }));
  ASSERT_CU(End(other));
  // Until its cost is settled, each launch has a marker, before which the driver is asked in any case.
  for (int i = 0; i < 4; ++i) {
    ASSERT_CU(Spin(t, Micros(10)));
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  }
  const uint64_t asked = CallsOf("cuStreamIsCapturing");
  for (int i = 0; i < 10; ++i) ASSERT_CU(Spin(t, Micros(10)));
  EXPECT_LT(CallsOf("cuStreamIsCapturing") - asked, 10u);
}

}  // namespace
}  // namespace gpushare::work
