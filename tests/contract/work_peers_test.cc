// SPDX-License-Identifier: Apache-2.0
// Copies between two GPUs through the layer `work`: held and charged only on the GPU of their stream, in either
// direction.
#include <functional>
#include <vector>

#include "tests/contract/work_devices_bed.h"

namespace gpushare::work {
namespace {

constexpr size_t kPeerBytes = 8 << 20;

class PeerCopyTest : public TwoGpusTest {
 protected:
  void SetUp() override {
    TwoGpusTest::SetUp();
    ASSERT_CU(cu_->MemAlloc(&here_, kPeerBytes));
    ASSERT_CU(cu_->CtxPushCurrent(other_));
    ASSERT_CU(cu_->MemAlloc(&there_, kPeerBytes));
    CUcontext popped = nullptr;
    ASSERT_CU(cu_->CtxPopCurrent(&popped));
  }

  struct Form {
    const char* name;
    std::function<CUresult()> call;
  };
  // Every way to copy from one GPU to the other, on `stream` or on the current context's default stream.
  std::vector<Form> Forms(const Tenant& t, CUstream stream, bool away) {
    const Payer p = t.payer();
    const CUdeviceptr to = away ? there_ : here_, from = away ? here_ : there_;
    const CUcontext of_to = away ? other_ : context_, of_from = away ? context_ : other_;
    CUDA_MEMCPY3D_PEER box{};
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = from;
    box.dstDevice = to;
    box.srcContext = of_from;
    box.dstContext = of_to;
    box.srcPitch = box.dstPitch = box.WidthInBytes = kPeerBytes / 64;
    box.srcHeight = box.dstHeight = box.Height = 8;
    box.Depth = 8;
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    rows.srcDevice = from;
    rows.dstDevice = to;
    rows.srcPitch = rows.dstPitch = rows.WidthInBytes = kPeerBytes / 64;
    rows.Height = 64;
    Calls& c = *calls_;
    return {
        {"Peer", [=, &c] { return c.MemcpyPeer(p, to, of_to, from, of_from, kPeerBytes); }},
        {"PeerAsync",
         [=, &c] { return c.MemcpyPeerAsync(p, to, of_to, from, of_from, kPeerBytes, stream); }},
        {"3DPeer", [=, &c] { return c.Memcpy3DPeer(p, &box); }},
        {"3DPeerAsync", [=, &c] { return c.Memcpy3DPeerAsync(p, &box, stream); }},
        {"DtoD", [=, &c] { return c.MemcpyDtoD(p, to, from, kPeerBytes); }},
        {"DtoDAsync", [=, &c] { return c.MemcpyDtoDAsync(p, to, from, kPeerBytes, stream); }},
        {"Memcpy", [=, &c] { return c.Memcpy(p, to, from, kPeerBytes); }},
        {"MemcpyAsync", [=, &c] { return c.MemcpyAsync(p, to, from, kPeerBytes, stream); }},
        {"2DAsync", [=, &c] { return c.Memcpy2DAsync(p, &rows, stream); }},
    };
  }
  // The bytes moved within one device, by the simulator's account.
  uint64_t Moved(const Tenant& t, bool on_second) const {
    gpushare_sim_truth truth{};
    EXPECT_EQ(sim_->account_truth(on_second ? 1 : 0, t.account, &truth), 0);
    return truth.d2d_bytes;
  }

  CUdeviceptr here_ = 0, there_ = 0;
};

TEST_F(PeerCopyTest, EachFormIsChargedOnceOnItsStreamsGpu) {
  const gate::TenantOptions limited = {
      .limits = {}, .h2d_bytes_per_s = 1e6, .d2h_bytes_per_s = 1e6};
  const Tenant& t = AddOnBoth(limited, limited);
  for (const bool on_second : {false, true}) {
    gate::Gate* const charged = on_second ? There(t) : t.gate;
    gate::Gate* const spared = on_second ? t.gate : There(t);
    ASSERT_CU(cu_->CtxPushCurrent(on_second ? other_ : context_));
    ASSERT_EQ(sim_->set_account(nullptr, t.account), 0);
    for (const bool away : {false, true}) {
      for (const Form& form : Forms(t, on_second ? streams_.at(&t) : t.stream, away)) {
        const gate::GateStats before = charged->stats(), none = spared->stats();
        const uint64_t moved = Moved(t, on_second);
        constexpr int kTimes = 10;
        for (int i = 0; i < kTimes; ++i) ASSERT_CU(form.call()) << form.name;
        ASSERT_CU(calls_->CtxSynchronize(t.payer()));
        Rest();
        const gate::GateStats now = charged->stats(), still = spared->stats();
        EXPECT_EQ(now.launches - before.launches, uint64_t{kTimes}) << form.name;
        // The time for the link and the memory, by the simulator: 8 MiB at 100 GB/s.
        EXPECT_NEAR(Ms(now.measured - before.measured), kTimes * kPeerBytes / 100e6, 0.1)
            << form.name;
        EXPECT_EQ(still.launches, none.launches) << form.name;
        EXPECT_EQ(still.measured, none.measured) << form.name;
        // The copy does not involve the host.
        for (const gate::GateStats& stats : {now, still}) {
          EXPECT_EQ(stats.copy_bytes[0] + stats.copy_bytes[1], 0u) << form.name;
        }
        EXPECT_EQ(Moved(t, on_second) - moved, kTimes * kPeerBytes) << form.name;
      }
    }
    CUcontext popped = nullptr;
    ASSERT_CU(cu_->CtxPopCurrent(&popped));
  }
}

// Each copy is held once, by the payer on that GPU, and does not depend on the credit on the other GPU.
TEST_F(PeerCopyTest, EachFormIsHeldOnceOnItsStreamsGpu) {
  const Tenant& t = AddOnBoth({}, {});
  There(t)->Suspend();  // a copy that were held there would not return
  for (const bool away : {false, true}) {
    for (const Form& form : Forms(t, t.stream, away)) ASSERT_CU(form.call()) << form.name;
  }
  const uint64_t went = t.gate->stats().launches;
  t.gate->Suspend();
  size_t done = 0;
  const std::vector<Form> forms = Forms(t, t.stream, true);
  const auto thread = Thread([&] {
    for (const Form& form : forms) {
      ASSERT_CU(form.call()) << form.name;
      ++done;
      t.gate->Suspend();  // makes the next one wait again
    }
  });
  for (size_t i = 0; i < forms.size(); ++i) {
    Rest();
    EXPECT_EQ(done, i) << forms[i].name;
    EXPECT_EQ(t.gate->stats().launches, went + i) << forms[i].name;
    t.gate->Resume();
    Rest();
    EXPECT_EQ(t.gate->stats().launches, went + i + 1) << forms[i].name;
  }
  thread->Join();
  t.gate->Resume();
  There(t)->Resume();
}

TEST_F(PeerCopyTest, ACapOfTheStreamsGpuHoldsThem) {
  const Tenant& t = AddOnBoth({}, {.limits = {.cap = 0.25}});
  for (const bool on_second : {false, true}) {
    ASSERT_CU(cu_->CtxPushCurrent(on_second ? other_ : context_));
    const CUstream stream = on_second ? streams_.at(&t) : t.stream;
    const Time began = clock().Now();
    for (int i = 0; i < 400; ++i) {
      ASSERT_CU(
          calls_->MemcpyPeerAsync(t.payer(), there_, other_, here_, context_, kPeerBytes, stream));
    }
    ASSERT_CU(cu_->StreamSynchronize(stream));
    // 34 ms; at a quarter 134 ms, minus the saved-up credit.
    const double took = Ms(clock().Now() - began);
    EXPECT_NEAR(took, on_second ? 120 : 34, on_second ? 15 : 5);
    CUcontext popped = nullptr;
    ASSERT_CU(cu_->CtxPopCurrent(&popped));
  }
}

TEST_F(PeerCopyTest, WhatTheDriverRefusesCostsNothing) {
  const Tenant& t = AddOnBoth({}, {});
  EXPECT_NE(
      calls_->MemcpyPeerAsync(t.payer(), there_, nullptr, here_, nullptr, kPeerBytes, t.stream),
      CUDA_SUCCESS);
  EXPECT_NE(
      calls_->MemcpyPeerAsync(t.payer(), there_, other_, here_, context_, 2 * kPeerBytes, t.stream),
      CUDA_SUCCESS);
  Rest();
  EXPECT_EQ(t.gate->stats().launches + There(t)->stats().launches, 0u);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

}  // namespace
}  // namespace gpushare::work
