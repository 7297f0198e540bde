// SPDX-License-Identifier: Apache-2.0
// Large copies beside other tenants, through the layer `work`: they are split into pieces, and each tenant has few in
// flight.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/contract/work_bed.h"

namespace gpushare::work {
namespace {

constexpr size_t kLarge = size_t{64} << 20, kSmall = size_t{1} << 20;
constexpr double kBytesPerMs = 10e6;  // the link's rate in each direction

class CopyPiecesTest : public WorkTest {
 protected:
  void SetUp() override {
    WorkTest::SetUp();
    const auto allocate = Symbol<CUresult(void**, size_t, unsigned)>("cuMemHostAlloc");
    void* host = nullptr;
    ASSERT_CU(allocate(&host, 2 * kLarge, 0));
    host_ = static_cast<unsigned char*>(host);
    ASSERT_CU(cu_->MemAlloc(&device_, 2 * kLarge));
  }
  CUresult Up(const Tenant& t, size_t bytes) {
    return calls_->MemcpyHtoDAsync(t.payer(), device_, host_, bytes, t.stream);
  }
  CUresult Down(const Tenant& t, size_t bytes) {
    return calls_->MemcpyDtoHAsync(t.payer(), host_, device_, bytes, t.stream);
  }
  Tenant& Of(sched::Band band, double weight = 1) {
    return Add({.limits = {.weight = weight, .band = band}});
  }
  // The times of `n` requests, each a copy of 1 MiB, one every 3 ms.
  std::vector<double> Requests(const Tenant& t, int n) {
    std::vector<double> took;
    for (int i = 0; i < n; ++i) {
      Rest(Millis(3));
      const Time began = clock().Now();
      EXPECT_CU(Up(t, kSmall));
      EXPECT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
      took.push_back(Ms(clock().Now() - began));
    }
    std::sort(took.begin(), took.end());
    return took;
  }

  unsigned char* host_ = nullptr;
  CUdeviceptr device_ = 0;
};

TEST_F(CopyPiecesTest, AloneACopyIsOneCallThatWaitsForNothing) {
  const Tenant& t = Weighing(1);
  const uint64_t calls = CallsOf("cuMemcpyHtoDAsync_v2"), records = CallsOf("cuEventRecord");
  const Time began = clock().Now();
  ASSERT_CU(Up(t, kLarge));
  EXPECT_LT(Ms(clock().Now() - began), 0.1);
  EXPECT_EQ(CallsOf("cuMemcpyHtoDAsync_v2") - calls, 1u);
  EXPECT_EQ(CallsOf("cuEventRecord"), records);
  // A tenant in the highest band does not split its copies either.
  Tenant& high = Of(sched::Band::kHigh);
  ASSERT_CU(Up(high, kLarge));
  EXPECT_EQ(CallsOf("cuMemcpyHtoDAsync_v2") - calls, 2u);
}

// The bound: 1.05 times the time that it takes alone, and two pieces of 4 MiB.
TEST_F(CopyPiecesTest, AServicesInputWaitsForLittleOfBestEffortsCopies) {
  const Tenant& service = Of(sched::Band::kHigh);
  const double alone = Requests(service, 100)[98];
  const Tenant& train = Of(sched::Band::kLow);
  bool done = false;
  const uint64_t before = Truth(train.account).h2d_bytes;
  const Time began = clock().Now();
  const auto copying = Thread([&] {
    while (!done) ASSERT_CU(Up(train, kLarge));
  });
  Rest(Millis(20));
  const double beside = Requests(service, 300)[296];
  done = true;
  copying->Join();
  const double ms = Ms(clock().Now() - began);
  const double residual = 2 * 4 * 1.048576e6 / kBytesPerMs;
  EXPECT_LE(beside, 1.05 * alone + residual);
  EXPECT_GT(beside, alone);  // the service did run beside other copies
  // And the link is as busy as before.
  const double moved = static_cast<double>(Truth(train.account).h2d_bytes - before) +
                       300 * static_cast<double>(kSmall);
  EXPECT_GE(moved, 0.97 * kBytesPerMs * ms);
}

TEST_F(CopyPiecesTest, ThoseThatAlwaysCopyHaveTheLinkByWeight) {
  const Tenant &a = Of(sched::Band::kNormal, 3), &b = Of(sched::Band::kNormal, 1);
  for (const bool up : {true, false}) {
    const auto moved = [&](const Tenant& t) {
      const gpushare_sim_truth truth = Truth(t.account);
      return static_cast<double>(up ? truth.h2d_bytes : truth.d2h_bytes);
    };
    const Time end = In(Millis(400));
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    for (const Tenant* t : {&a, &b}) {
      threads.push_back(Thread([&, t] {
        while (clock().Now() < end) ASSERT_CU(up ? Up(*t, kLarge) : Down(*t, kLarge));
      }));
    }
    Rest(Millis(50));
    const double a0 = moved(a), b0 = moved(b);
    Rest(Millis(300));
    const double of_a = moved(a) - a0, of_b = moved(b) - b0;
    EXPECT_NEAR(of_a / (of_a + of_b), 0.75, 0.03) << up;
    EXPECT_GE(of_a + of_b, 0.97 * kBytesPerMs * 300) << up;
    for (const auto& thread : threads) thread->Join();
    ASSERT_CU(calls_->CtxSynchronize(a.payer()));
  }
}

TEST_F(CopyPiecesTest, ManyOfAFewMegabytesQueueNoMoreThanOneLargeOne) {
  const Tenant &a = Weighing(1), &b = Weighing(1);
  for (int i = 0; i < 30; ++i) ASSERT_CU(Up(a, size_t{4} << 20));
  const Time began = clock().Now();
  ASSERT_CU(Up(b, kSmall));
  ASSERT_CU(calls_->StreamSynchronize(b.payer(), b.stream));
  EXPECT_LT(Ms(clock().Now() - began), (2 * 4 + 1) * 1.048576e6 / kBytesPerMs + 0.05);
}

// Copies behind work that only the calling thread can end must not block that thread: each call returns.
TEST_F(CopyPiecesTest, BehindAStreamThatWaitsForItsCallerNothingWaitsForLong) {
  const Tenant &t = Weighing(1), &other = Weighing(1);
  const auto wait =
      Symbol<CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWaitValue32_v2");
  const auto write =
      Symbol<CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWriteValue32_v2");
  CUdeviceptr word = 0;
  ASSERT_CU(cu_->MemAlloc(&word, 4));
  ASSERT_CU(calls_->MemsetD32(t.payer(), word, 0, 1));
  ASSERT_CU(wait(t.stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  Time began = clock().Now();
  ASSERT_CU(Up(t, kLarge));
  EXPECT_NEAR(Ms(clock().Now() - began), 20, 3);
  // By now the layer knows that the stream is stuck.
  began = clock().Now();
  for (int i = 0; i < 20; ++i) ASSERT_CU(Up(t, kSmall));
  EXPECT_LT(Ms(clock().Now() - began), 1);
  EXPECT_GE(t.gate->stats().held_past_bound, 1u);
  ASSERT_CU(write(other.stream, word, 1, 0));
  ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
  EXPECT_EQ(Truth(t.account).h2d_bytes, kLarge + 20 * kSmall);
  // The stream goes on, so its copies are split and waited for again.
  const uint64_t calls = CallsOf("cuMemcpyHtoDAsync_v2");
  ASSERT_CU(Up(t, kLarge));
  EXPECT_EQ(CallsOf("cuMemcpyHtoDAsync_v2") - calls, 16u);
}

TEST_F(CopyPiecesTest, AllOfItArrivesInTheOrderOfItsStream) {
  const Tenant &t = Weighing(1), &other = Weighing(1);
  for (size_t i = 0; i < kLarge; ++i) host_[i] = static_cast<unsigned char>(i * 2654435761u >> 24);
  CUevent event = nullptr;
  ASSERT_CU(cu_->EventCreate(&event, 0));
  ASSERT_CU(Up(t, kLarge));
  ASSERT_CU(cu_->EventRecord(event, t.stream));
  EXPECT_EQ(cu_->EventQuery(event), CUDA_ERROR_NOT_READY);
  ASSERT_CU(cu_->StreamWaitEvent(other.stream, event, 0));
  ASSERT_CU(calls_->MemcpyDtoHAsync(other.payer(), host_ + kLarge, device_, kLarge, other.stream));
  ASSERT_CU(calls_->StreamSynchronize(other.payer(), other.stream));
  EXPECT_TRUE(std::equal(host_, host_ + kLarge, host_ + kLarge));
  // Blocking copies are split as well, and a copy that the driver refuses is refused as a whole.
  std::fill(host_ + kLarge, host_ + 2 * kLarge, 0);
  const uint64_t calls = CallsOf("cuMemcpyDtoH_v2");
  ASSERT_CU(calls_->MemcpyDtoH(t.payer(), host_ + kLarge, device_, kLarge));
  EXPECT_EQ(CallsOf("cuMemcpyDtoH_v2") - calls, 16u);
  EXPECT_TRUE(std::equal(host_, host_ + kLarge, host_ + kLarge));
  const uint64_t moved = Truth(t.account).h2d_bytes;
  EXPECT_EQ(calls_->MemcpyHtoDAsync(t.payer(), device_ + kLarge + kSmall, host_, kLarge, t.stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Truth(t.account).h2d_bytes, moved);
}

// Each of its pieces waits for two of the other thread's to be given, and behind two that are. Other tenants wait for the tenant's two
// pieces and for the one that the blocking thread waits for itself.
TEST_F(CopyPiecesTest, ABlockingCopyGoesOnBesideAnotherThreadsCopies) {
  const Tenant &t = Weighing(1), &other = Weighing(1);
  for (size_t i = 0; i < kLarge; ++i) host_[i] = static_cast<unsigned char>(i * 2654435761u >> 24);
  bool done = false;
  const auto copying = Thread([&] {
    while (!done) ASSERT_CU(Up(t, kLarge));
  });
  std::vector<double> waited;
  const auto asking = Thread([&] { waited = Requests(other, 20); });
  Rest(Millis(20));
  const uint64_t calls = CallsOf("cuMemcpyHtoD_v2");
  const Time began = clock().Now();
  for (int i = 0; i < 4; ++i) {
    ASSERT_CU(calls_->MemcpyHtoD(t.payer(), device_ + kLarge, host_, kLarge));
  }
  const double took = Ms(clock().Now() - began), alone = 4 * kLarge / kBytesPerMs;
  EXPECT_EQ(CallsOf("cuMemcpyHtoD_v2") - calls, 4 * 16u);
  EXPECT_GT(took, 1.5 * alone);  // there was another thread
  EXPECT_LT(took, 5 * alone);
  done = true;
  copying->Join();
  asking->Join();
  EXPECT_LT(waited.back(), (3 * 4 + 1) * 1.048576e6 / kBytesPerMs + 0.1);
  ASSERT_CU(calls_->MemcpyDtoH(other.payer(), host_ + kLarge, device_ + kLarge, kLarge));
  EXPECT_TRUE(std::equal(host_, host_ + kLarge, host_ + kLarge));
}

// A piece whose event cannot be recorded is not waited for, and the event is reused for the next piece.
TEST_F(CopyPiecesTest, AnEventThatIsNotRecordedIsGivenBack) {
  const Tenant &t = Weighing(1), &other = Weighing(1);
  static_cast<void>(other);
  ASSERT_CU(Up(t, kLarge));
  ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
  char error[256] = "";
  ASSERT_EQ(sim_->inject("error call=cuEventRecord code=2", error, sizeof error), 0) << error;
  const uint64_t events = CallsOf("cuEventCreate");
  for (int i = 0; i < 10; ++i) ASSERT_CU(Up(t, kLarge));
  EXPECT_LE(CallsOf("cuEventCreate") - events, 4u);
  ASSERT_EQ(sim_->inject("clear", error, sizeof error), 0) << error;
}

// A captured copy goes into the graph whole, and no node is added.
TEST_F(CopyPiecesTest, WhileCapturingItIsOneCall) {
  const Tenant &t = Weighing(1), &other = Weighing(1);
  static_cast<void>(other);
  ASSERT_CU(calls_->StreamBeginCapture(t.stream, [&] {
    return cu_->StreamBeginCapture(t.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  }));
  const uint64_t calls = CallsOf("cuMemcpyHtoDAsync_v2");
  ASSERT_CU(Up(t, kLarge));
  EXPECT_EQ(CallsOf("cuMemcpyHtoDAsync_v2") - calls, 1u);
  CUgraph graph = nullptr;
  ASSERT_CU(calls_->StreamEndCapture(t.stream, &graph));
  size_t nodes = 0;
  ASSERT_CU(cu_->GraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
}

// Queries that are made meanwhile do not invalidate a capture of another stream of the same thread.
TEST_F(CopyPiecesTest, BesideACaptureOfTheSameThread) {
  const Tenant &t = Weighing(1), &other = Weighing(1);
  ASSERT_CU(calls_->StreamBeginCapture(other.stream, [&] {
    return cu_->StreamBeginCapture(other.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }));
  ASSERT_CU(Spin(other, Micros(10)));
  ASSERT_CU(Up(t, kLarge));
  CUgraph graph = nullptr;
  ASSERT_CU(calls_->StreamEndCapture(other.stream, &graph));
  ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
  EXPECT_EQ(Truth(t.account).h2d_bytes, kLarge);
}

// The part of the link that a broker would grant: the test says how many bytes in all.
class Granted final : public gate::CopySupply {
 public:
  bool LimitsCopies(gate::CopyDirection) const override { return false; }
  gate::CopyState Copies(gate::CopyDirection, Time) override { return gate::CopyState::kUnlimited; }
  void ChargeCopy(gate::CopyDirection, int64_t) override {}
  Time AwaitCopies(gate::CopyDirection, Time) override { return kNever; }
  void NobodyAwaitsCopies(gate::CopyDirection) override {}
  gate::LinkState Link(gate::CopyDirection) const override { return link; }
  bool TakeLink(gate::CopyDirection, uint64_t bytes, bool force, Time) override {
    if (link == gate::LinkState::kBound && given >= granted && !force) return false;
    forced += force ? 1 : 0;
    largest = std::max(largest, bytes);
    given += bytes;
    return true;
  }
  void LinkDone(gate::CopyDirection, uint64_t bytes) override { done += bytes; }

  gate::LinkState link = gate::LinkState::kFree;
  uint64_t granted = 0, given = 0, done = 0, largest = 0;
  int forced = 0;
};

class CopyLinkTest : public CopyPiecesTest {
 protected:
  gate::EngineOptions options() const override {
    gate::EngineOptions options = CopyPiecesTest::options();
    options.copy_supply = supply_;
    return options;
  }
  const std::shared_ptr<Granted> supply_ = std::make_shared<Granted>();
};

TEST_F(CopyLinkTest, WhereNoOtherProcessIsACopyGoesWhole) {
  const Tenant& t = Weighing(1);
  const uint64_t calls = CallsOf("cuMemcpyHtoDAsync_v2");
  ASSERT_CU(Up(t, kLarge));
  EXPECT_EQ(CallsOf("cuMemcpyHtoDAsync_v2") - calls, 1u);
  EXPECT_EQ(supply_->given, 0u);
}

TEST_F(CopyLinkTest, BesideOtherProcessesItGoesInPiecesOfWhichTheSupplyHears) {
  const Tenant& t = Weighing(1);
  supply_->link = gate::LinkState::kShared;
  ASSERT_CU(Up(t, kLarge));
  EXPECT_EQ(supply_->given, kLarge);
  EXPECT_EQ(supply_->largest, uint64_t{4} << 20);
  EXPECT_EQ(supply_->done, kLarge - (8 << 20));  // two pieces are in flight
  ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
  ASSERT_CU(Up(t, kSmall));
  EXPECT_EQ(supply_->done, kLarge);
  // Small ones go as they are while no other process copies, and are known to be done at once.
  const uint64_t records = CallsOf("cuEventRecord");
  ASSERT_CU(Up(t, 4096));
  EXPECT_EQ(CallsOf("cuEventRecord"), records);
  EXPECT_EQ(supply_->given, kLarge + kSmall + 4096);
  // One that is waited for is done when it returns, and may be as large as the two pieces of another.
  ASSERT_CU(calls_->MemcpyHtoD(t.payer(), device_, host_, kLarge, NullStream::kLegacy));
  EXPECT_EQ(supply_->largest, uint64_t{8} << 20);
  ASSERT_CU(calls_->StreamSynchronize(t.payer(), t.stream));
  // One that the driver refuses leaves nothing behind.
  EXPECT_NE(calls_->MemcpyHtoDAsync(t.payer(), 1, host_, kLarge, t.stream), CUDA_SUCCESS);
  ASSERT_CU(Up(t, kSmall));
  EXPECT_EQ(supply_->given - supply_->done, kSmall);
}

TEST_F(CopyLinkTest, WhatIsNotGrantedWaitsButNotForEver) {
  const Tenant& t = Weighing(1);
  supply_->link = gate::LinkState::kBound;
  supply_->granted = 1;
  const auto grants = Thread([&] {
    Rest(Millis(5));
    EXPECT_EQ(supply_->given, uint64_t{4} << 20);
    supply_->granted = kLarge;
  });
  const Time began = clock().Now();
  ASSERT_CU(Up(t, kLarge));
  grants->Join();
  EXPECT_NEAR(Ms(clock().Now() - began), 5 + (60 << 20) / kBytesPerMs, 1);
  EXPECT_EQ(supply_->forced, 0);
  // Small ones wait too, since many of them would be a part of the link.
  const Time waits = clock().Now();
  ASSERT_CU(Up(t, 4096));
  EXPECT_NEAR(Ms(clock().Now() - waits), 200, 5);
  EXPECT_EQ(supply_->forced, 1);
  EXPECT_EQ(t.gate->stats().held_past_bound, 1u);
}

}  // namespace
}  // namespace gpushare::work
