// SPDX-License-Identifier: Apache-2.0
// What each kind of isolation separates and what it does not: the table of docs/isolation.md, row by row.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "gpushare/placement.h"
#include "gpushare/watchdog.h"
#include "tests/unit/device/device_test.h"
#include "tests/unit/device/two_kernels.h"

namespace gpushare {
namespace {

using ::testing::HasSubstr;

// 100 SMs in steps of 8; kernels run side by side.
class IsolationTest : public DeviceTest {
 protected:
  struct Tenancy {
    VirtualDevice device;
    std::optional<Module> module;
    Function spin, broken;
    std::optional<Stream> stream;
  };

  std::string config() const override {
    return "sms=100,memory=8GiB,clock=virtual,h2d=10GB/s,d2h=10GB/s";
  }
  void SetUp() override {
    DeviceTest::SetUp();
    push_ = runtime_->Symbol<int(CUctx_st*)>("cuCtxPushCurrent_v2");
    pop_ = runtime_->Symbol<int(CUctx_st**)>("cuCtxPopCurrent_v2");
    create_ = runtime_->Symbol<int(CUstream_st**, unsigned)>("cuStreamCreate");
    destroy_ = runtime_->Symbol<int(CUstream_st*)>("cuStreamDestroy_v2");
  }
  void TearDown() override {
    ASSERT_OK(Inject("clear"));
    DeviceTest::TearDown();
  }
  Tenancy Make(const std::string& name, const std::string& spec, uint32_t account = 0) {
    Tenancy made{MakeDevice(name, spec), std::nullopt, {}, {}, std::nullopt};
    made.module.emplace(Must(Module::Load(made.device, kTwoKernels)));
    made.spin = Must(made.module->GetFunction("spin"));
    made.broken = Must(made.module->GetFunction("broken"));
    made.stream.emplace(Must(Stream::Create(made.device)));
    EXPECT_EQ(account_(Must(made.stream->native()), account), 0);
    return made;
  }
  static absl::Status Spin(const Tenancy& who, absl::Duration cost, uint32_t blocks = 100) {
    return who.stream->Launch(who.spin, {.grid = {blocks}, .block = {1024}},
                              static_cast<uint64_t>(absl::ToInt64Nanoseconds(cost)));
  }
  static absl::Status Break(const Tenancy& who, uint32_t blocks = 100) {
    return who.stream->Launch(who.broken, {.grid = {blocks}, .block = {1024}}, uint64_t{1'000'000});
  }
  Watchdog Watch() {
    return Must(Watchdog::Start(*gpu_, {.limit = absl::Milliseconds(200)},
                                [this](const Incident& incident) { told_.push_back(incident); }));
  }
  std::vector<std::string> Told(Incident::Kind kind) const {
    std::vector<std::string> tenants;
    for (const Incident& incident : told_) {
      if (incident.kind == kind) tenants.push_back(incident.tenant);
    }
    std::sort(tenants.begin(), tenants.end());
    return tenants;
  }
  double UsedNs(uint32_t account) const {
    gpushare_sim_truth truth = {};
    EXPECT_EQ(truth_(0, account, &truth), 0);
    return truth.used_ns;
  }
  // Each worker launches as fast as it may, for a given time.
  struct Worker {
    const Tenancy* who;
    uint32_t blocks;
    absl::Duration kernel;
  };
  void Backlog(const std::vector<Worker>& all, absl::Duration how_long) {
    const absl::Duration end = runtime_->Now() + how_long;
    std::vector<Thread> threads;
    for (const Worker& worker : all) {
      threads.push_back(Must(runtime_->StartThread("worker", [this, worker, end] {
        while (runtime_->Now() < end) EXPECT_OK(Spin(*worker.who, worker.kernel, worker.blocks));
        EXPECT_OK(worker.who->stream->Synchronize());
      })));
    }
  }
  CUstream_st* NativeIn(CUctx_st* context) {
    CUstream_st* native = nullptr;
    CUctx_st* popped = nullptr;
    EXPECT_EQ(push_(context), 0);
    EXPECT_EQ(create_(&native, 1), 0);
    EXPECT_EQ(pop_(&popped), 0);
    return native;
  }

  int (*push_)(CUctx_st*) = nullptr;
  int (*pop_)(CUctx_st**) = nullptr;
  int (*create_)(CUstream_st**, unsigned) = nullptr;
  int (*destroy_)(CUstream_st*) = nullptr;
  std::vector<Incident> told_;
};

class SerialIsolationTest : public IsolationTest {
  std::string config() const override {
    return "sms=100,memory=8GiB,clock=virtual,h2d=10GB/s,d2h=10GB/s,overlap=serial";
  }
};

// ---- green ----

TEST_F(IsolationTest, AShareIsRoundedUpToTheStepAndSaidSo) {
  const VirtualDevice a = MakeDevice("a", "memory=1GiB,isolation=green,compute=25%");
  EXPECT_EQ(Must(a.stats()).guarantee, Percent(32));  // 25 SMs were asked for, 32 are given
  EXPECT_EQ(Must(a.spec()).ToString(), "memory=1GiB,compute=25%,isolation=green");
  const VirtualDevice b = MakeDevice("b", "isolation=green,guarantee=64%");
  EXPECT_EQ(Must(b.stats()).guarantee, Percent(64));
  const auto full = VirtualDevice::Create(*gpu_, MakeTenant("c"), "isolation=green,compute=5%");
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted) << full.status();
  const auto whole = VirtualDevice::Create(*gpu_, MakeTenant("d"), "isolation=green,compute=100%");
  EXPECT_EQ(whole.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(whole.status().message()), HasSubstr("12 steps of 8"));
  const auto none = VirtualDevice::Create(*gpu_, MakeTenant("e"), "isolation=green,weight=2");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("add one (compute=30%, say)"));
}

TEST_F(IsolationTest, PartitionsRunBesideOneAnother) {
  const Tenancy a = Make("a", "isolation=green,compute=24%", 1);
  const Tenancy b = Make("b", "isolation=green,compute=48%", 2);
  Backlog({{&a, 24, absl::Microseconds(50)}, {&b, 48, absl::Microseconds(50)}},
          absl::Milliseconds(100));
  // Both run all the time, so the device's time is divided by their SMs.
  EXPECT_NEAR(UsedNs(1) / (UsedNs(1) + UsedNs(2)), 1.0 / 3, 0.01);
  EXPECT_GT(UsedNs(1) + UsedNs(2), 99e6);
  EXPECT_GT(Must(a.device.stats()).compute.launches, 0u);
}

TEST_F(IsolationTest, ACapIsOfTheGpuNotOfThePartition) {
  const Tenancy a = Make("a", "isolation=green,compute=9%", 1);
  const absl::Duration start = runtime_->Now();
  Backlog({{&a, 16, absl::Microseconds(100)}}, absl::Milliseconds(200));
  EXPECT_GT(UsedNs(1) / absl::ToDoubleNanoseconds(runtime_->Now() - start), 0.98)
      << "what the step gives beyond the share is its own";
  EXPECT_OK(a.device.Resize("cap=9%"));
  const double before = UsedNs(1);
  const absl::Duration since = runtime_->Now();
  Backlog({{&a, 16, absl::Microseconds(100)}}, absl::Seconds(1));
  // The fraction of the time, on 16 SMs.
  EXPECT_NEAR((UsedNs(1) - before) / absl::ToDoubleNanoseconds(runtime_->Now() - since), 9.0 / 16,
              0.02);
}

TEST_F(IsolationTest, APartitionGrowsAndShrinksForNewStreams) {
  const Tenancy a = Make("a", "isolation=green,compute=24%");
  const auto takes = [&](const Stream& stream) {
    const absl::Duration start = runtime_->Now();
    EXPECT_OK(stream.Launch(a.spin, {.grid = {48}, .block = {1024}}, uint64_t{1'000'000}));
    EXPECT_OK(stream.Synchronize());
    return absl::ToDoubleMilliseconds(runtime_->Now() - start);
  };
  EXPECT_NEAR(takes(*a.stream), 2, 0.1);
  const VirtualDevice b = MakeDevice("b", "isolation=green,compute=40%");
  EXPECT_OK(a.device.Resize("compute=48%"));
  EXPECT_EQ(Must(a.device.stats()).guarantee, Percent(48));
  EXPECT_NEAR(takes(*a.stream), 2, 0.1) << "it keeps the SMs that it was made with";
  {
    const Stream wide = Must(Stream::Create(a.device));
    EXPECT_NEAR(takes(wide), 1, 0.1);
    const absl::Status refused = a.device.Resize("compute=60%");
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_OK(a.device.Resize("compute=24%"));
  }
  EXPECT_OK(b.Resize("compute=72%"));  // the last stream of the others is gone
  EXPECT_EQ(b.Resize("isolation=shared").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(IsolationTest, AKernelThatNeverEndsKeepsItsPartition) {
  const Tenancy a = Make("a", "isolation=green,compute=24%"),
                b = Make("b", "isolation=green,compute=48%");
  const Watchdog watchdog = Watch();
  ASSERT_OK(Break(a, 24));
  ASSERT_OK(a.stream->Synchronize());
  ASSERT_OK(Inject("hang kernel=broken"));
  ASSERT_OK(Break(a, 24));
  ASSERT_OK(a.stream->Yield());
  for (int i = 0; i < 50; ++i) {
    const absl::Duration start = runtime_->Now();
    ASSERT_OK(Spin(b, absl::Milliseconds(10), 48));
    ASSERT_OK(b.stream->Synchronize());
    EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - start), 10, 0.1);
  }
  EXPECT_THAT(Told(Incident::Kind::kStuck), ::testing::ElementsAre("a"));
}

TEST_F(IsolationTest, AFaultInAPartitionTakesAllButThoseWithTheirOwnContext) {
  const Tenancy green = Make("green", "isolation=green,compute=24%"), shared = Make("shared", ""),
                own = Make("own", "isolation=context");
  const Watchdog watchdog = Watch();
  ASSERT_OK(Inject("illegal_address kernel=broken"));
  ASSERT_OK(Spin(own, absl::Milliseconds(5), 8));
  ASSERT_OK(Spin(shared, absl::Milliseconds(5), 8));
  ASSERT_OK(Break(green, 8));
  runtime_->SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(green.stream->Synchronize().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(shared.stream->Synchronize().code(), absl::StatusCode::kAborted);
  EXPECT_OK(own.stream->Synchronize());
  ASSERT_OK(Spin(own, absl::Milliseconds(5), 8));
  EXPECT_OK(own.stream->Synchronize());
  EXPECT_THAT(Told(Incident::Kind::kFault), ::testing::ElementsAre("green", "shared"));
}

// ---- process ----

// The tests with a broker are in tests/processes/isolation_test.py.
TEST_F(IsolationTest, AProcessOfItsOwnTakesABroker) {
  const Tenant tenant = Must(Tenant::Create(*runtime_, {.name = "own"}));
  const absl::Status refused =
      VirtualDevice::Create(*gpu_, tenant, Must(VirtualDeviceSpec::Parse("isolation=process")))
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("GPUSHARE_BROKER"));
}

// ---- context ----

TEST_F(IsolationTest, AFaultInItsOwnContextIsItsOwn) {
  const Tenancy shared = Make("shared", ""), green = Make("green", "isolation=green,compute=24%");
  const Watchdog watchdog = Watch();
  const uint64_t before = UsedOnDevice();
  {
    const Tenancy own = Make("own", "memory=1GiB,isolation=context");
    const DevicePtr left = Must(Must(Allocator::Create(own.device)).AllocateRaw(MiB(64)));
    EXPECT_NE(left, DevicePtr());
    ASSERT_OK(Inject("illegal_address kernel=broken"));
    ASSERT_OK(Spin(shared, absl::Milliseconds(5), 8));
    ASSERT_OK(Break(own, 8));
    runtime_->SleepFor(absl::Milliseconds(50));
    EXPECT_EQ(own.stream->Synchronize().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(Spin(own, absl::Milliseconds(1)).code(), absl::StatusCode::kAborted);
    EXPECT_OK(shared.stream->Synchronize());
    ASSERT_OK(Spin(green, absl::Milliseconds(1), 8));
    EXPECT_OK(green.stream->Synchronize());
    EXPECT_THAT(Told(Incident::Kind::kFault), ::testing::ElementsAre("own"));
    EXPECT_EQ(Must(Gpu::Probe(*runtime_, "0")).state, GpuProbe::State::kHealthy);
  }
  // It can be created again: its memory ended with its context.
  EXPECT_EQ(UsedOnDevice(), before);
  ASSERT_OK(Inject("clear"));
  const Tenancy again = Make("again", "memory=7GiB,isolation=context");
  ASSERT_OK(Break(again));
  EXPECT_OK(again.stream->Synchronize());
}

TEST_F(SerialIsolationTest, SharesHoldAcrossContexts) {
  const Tenancy a = Make("a", "isolation=context,weight=3", 1), b = Make("b", "weight=1", 2);
  Backlog({{&a, 100, absl::Microseconds(200)}, {&b, 100, absl::Microseconds(200)}},
          absl::Milliseconds(400));
  // As between tenants of one context: over 0.4 s from a cold start, within 2 percentage points.
  EXPECT_NEAR(UsedNs(1) / (UsedNs(1) + UsedNs(2)), 0.75, 0.02);
  const double measured = absl::ToDoubleNanoseconds(Must(a.device.stats()).compute.charged);
  EXPECT_NEAR(measured / UsedNs(1), 1, 0.03);
}

// The device runs one kernel at a time, so a kernel of few blocks keeps the others' out as long as one of many.
TEST_F(SerialIsolationTest, SharesHoldAcrossContextsWhateverTheKernelsWidth) {
  const Tenancy a = Make("a", "isolation=context", 1), b = Make("b", "isolation=context", 2);
  double used_a = 0, used_b = 0;
  for (const auto& [blocks_a, us_a, blocks_b, us_b] :
       {std::array{50u, 100u, 100u, 50u}, {50u, 100u, 50u, 20u}, {10u, 1000u, 10u, 50u}}) {
    SCOPED_TRACE(us_a);
    Backlog({{&a, blocks_a, absl::Microseconds(us_a)}, {&b, blocks_b, absl::Microseconds(us_b)}},
            absl::Milliseconds(400));
    const double now_a = UsedNs(1) - std::exchange(used_a, UsedNs(1));
    const double now_b = UsedNs(2) - std::exchange(used_b, UsedNs(2));
    EXPECT_NEAR(now_a / (now_a + now_b), 0.5, 0.02);
  }
}

TEST_F(IsolationTest, AllThatASharedOneDoesWorksInAContext) {
  const Tenancy own = Make("own", "memory=256MiB,isolation=context");
  std::vector<char> in(1 << 20, 7), out(1 << 20);
  for (const auto strategy : {AllocationStrategy::kDirect, AllocationStrategy::kSuballocating}) {
    const Allocator allocator = Must(Allocator::Create(own.device, {.strategy = strategy}));
    const Allocation memory = Must(allocator.Allocate(MiB(1)));
    EXPECT_OK(own.stream->CopyToDevice(memory.pointer(), in.data(), MiB(1)));
    EXPECT_OK(own.stream->SetAsync(memory.pointer(), 9, Bytes(10)));
    EXPECT_OK(own.stream->CopyToHost(out.data(), memory.pointer(), MiB(1)));
    EXPECT_EQ(out[0], 9);
    EXPECT_EQ(out[10], 7);
  }
  {
    Lease lease = Must(Lease::Acquire(own.device, {.streams = {&*own.stream}}));
    EXPECT_OK(Spin(own, absl::Milliseconds(1)));
    EXPECT_OK(lease.Release().status());
  }
  EXPECT_OK(own.stream->BeginCapture());
  EXPECT_OK(Spin(own, absl::Milliseconds(1)));
  const Graph graph = Must(own.stream->EndCapture());
  EXPECT_OK(own.stream->LaunchGraph(graph));
  const Event begin = Must(Event::Create(own.device, true)),
              end = Must(Event::Create(own.device, true));
  EXPECT_OK(own.stream->Record(begin));
  EXPECT_OK(Spin(own, absl::Milliseconds(2)));
  EXPECT_OK(own.stream->Record(end));
  EXPECT_OK(end.Synchronize());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(Must(end.Since(begin))), 2, 0.1);
  EXPECT_EQ(Must(own.device.stats()).compute.markers_failed, 0u);
  // It does not accept kernels of the GPU's shared context.
  const Module outside = Must(Module::Load(*gpu_, kTwoKernels));
  const absl::Status refused = own.stream->Launch(Must(outside.GetFunction("spin")),
                                                  {.grid = {1}, .block = {32}}, uint64_t{1000});
  EXPECT_THAT(std::string(refused.message()), HasSubstr("load the kernel for it, not for the GPU"));
}

TEST_F(IsolationTest, ClosingAContextEndsWhatNeverEnds) {
  const Tenancy shared = Make("shared", "");
  const uint64_t before = UsedOnDevice();
  {
    const Tenancy own = Make("own", "memory=1GiB,isolation=context");
    EXPECT_OK(Must(Allocator::Create(own.device)).AllocateRaw(MiB(64)).status());
    ASSERT_OK(Inject("hang kernel=broken"));
    ASSERT_OK(Break(own, 100));
    runtime_->SleepFor(absl::Milliseconds(10));
  }
  const absl::Duration start = runtime_->Now();
  ASSERT_OK(Spin(shared, absl::Milliseconds(1), 100));
  EXPECT_OK(shared.stream->Synchronize());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - start), 1, 0.1);
  EXPECT_EQ(UsedOnDevice(), before);
}

TEST_F(IsolationTest, ClosingAContextWaitsForWhatEnds) {
  std::vector<char> in(1 << 20, 7), out(1 << 20);
  {
    const Tenancy own = Make("own", "memory=1GiB,isolation=context");
    const Allocation memory = Must(Must(Allocator::Create(own.device)).Allocate(MiB(1)));
    EXPECT_OK(own.stream->CopyToDevice(memory.pointer(), in.data(), MiB(1)));
    EXPECT_OK(Spin(own, absl::Milliseconds(20)));
    EXPECT_OK(own.stream->CopyToHostAsync(out.data(), memory.pointer(), MiB(1)));
  }
  EXPECT_EQ(out[12345], 7);
}

TEST_F(IsolationTest, TheDriversPoolIsRefusedWhereTheContextIsItsOwn) {
  const VirtualDevice own = MakeDevice("own", "isolation=context");
  const absl::Status refused =
      Allocator::Create(own, {.strategy = AllocationStrategy::kPool}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("use 'suballocating'"));
}

// A waiter gets the bytes when the driver has them again, and not earlier.
TEST_F(IsolationTest, WhatAContextHoldsIsChargedUntilItHasEnded) {
  for (const auto strategy : {AllocationStrategy::kDirect, AllocationStrategy::kSuballocating}) {
    const VirtualDevice waits = MakeDevice("waits", "");
    const Allocator waiting = Must(Allocator::Create(waits));
    std::optional<VirtualDevice> own = MakeDevice("own", "isolation=context");
    std::optional<Allocator> holds = Must(Allocator::Create(*own, {.strategy = strategy}));
    EXPECT_OK(holds->AllocateRaw(GiB(6)).status());
    ASSERT_OK(Inject("slow call=cuCtxDestroy_v2 host=5ms"));
    absl::Duration served;
    Thread thread = Must(runtime_->StartThread("waits", [&] {
      const auto memory = waiting.Allocate(GiB(6), {.timeout = absl::Seconds(1)});
      EXPECT_OK(memory.status());
      served = runtime_->Now();
    }));
    runtime_->SleepFor(absl::Milliseconds(1));
    const absl::Duration closes = runtime_->Now();
    holds.reset();
    own.reset();
    thread.Join();
    EXPECT_GE(served - closes, absl::Milliseconds(5));
    ASSERT_OK(Inject("clear"));
  }
}

// The device has the bytes of a lost context until that is gone: nobody is told that they are free before.
TEST_F(IsolationTest, WhatALostContextHeldIsChargedUntilItHasEnded) {
  for (const auto strategy : {AllocationStrategy::kDirect, AllocationStrategy::kSuballocating}) {
    SCOPED_TRACE(static_cast<int>(strategy));
    const VirtualDevice other = MakeDevice("other", "memory=1GiB,memory_cap=100%");
    const Allocator neighbour = Must(Allocator::Create(other));
    std::optional<Tenancy> own = Make("own", "memory=6GiB,isolation=context");
    const auto used = [&] { return Must(own->device.stats()).memory.used; };
    std::optional<Allocator> holds = Must(Allocator::Create(own->device, {.strategy = strategy}));
    const DevicePtr held = Must(holds->AllocateRaw(GiB(5)));
    const auto waits = [&](const Allocator& from, absl::Status* told) {
      return Must(runtime_->StartThread("waits", [&from, told] {
        *told = from.Allocate(GiB(6), {.timeout = absl::Seconds(1)}).status();
      }));
    };
    absl::Status told_own, told_other;
    Thread inside = waits(*holds, &told_own), beside = waits(neighbour, &told_other);
    runtime_->SleepFor(absl::Milliseconds(1));
    ASSERT_OK(Inject("illegal_address kernel=broken"));
    ASSERT_OK(Break(*own));
    EXPECT_EQ(own->stream->Synchronize().code(), absl::StatusCode::kAborted);
    ASSERT_OK(Inject("clear"));

    for (int i = 0; i < 2; ++i) {
      absl::Status freed = holds->Free(held);
      if (strategy == AllocationStrategy::kDirect) {
        EXPECT_EQ(freed.code(), absl::StatusCode::kAborted) << freed;
      } else {
        EXPECT_EQ(freed.ok(), i == 0) << freed;
      }
      EXPECT_EQ(used(), GiB(5));
    }
    // Who waits in the context itself does so in vain.
    const absl::Duration freed = runtime_->Now();
    inside.Join();
    EXPECT_LE(runtime_->Now() - freed, absl::Milliseconds(2));
    EXPECT_EQ(told_own.code(), absl::StatusCode::kAborted) << told_own;
    EXPECT_THAT(std::string(told_own.message()), HasSubstr("'own'"));
    EXPECT_EQ(holds->Allocate(GiB(6)).status().code(), absl::StatusCode::kAborted);
    // A neighbour is refused what the device has not, and told so.
    const absl::Status refused = neighbour.Allocate(GiB(4)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("the rest is what others leave unused"));
    holds.reset();
    own.reset();
    beside.Join();
    EXPECT_OK(told_other);
    EXPECT_OK(neighbour.Allocate(GiB(6)).status());
  }
}

// A free that is inside the driver when the last handle is closed, and one that the driver refuses then.
TEST_F(IsolationTest, AFreeWhileItsContextEndsIsCredited) {
  for (const char* fault :
       {"slow call=cuMemFree_v2 host=10ms", "error call=cuMemFree_v2 code=1 host=10ms"}) {
    const uint64_t before = UsedOnDevice();
    std::optional<VirtualDevice> own = MakeDevice("own", "memory=4GiB,isolation=context");
    const DevicePtr memory = Must(Must(Allocator::Create(*own)).AllocateRaw(GiB(1)));
    const DevicePtr other = Must(Must(Allocator::Create(*own)).AllocateRaw(GiB(1)));
    ASSERT_OK(Inject(fault));
    ASSERT_OK(Inject("slow call=cuCtxDestroy_v2 host=20ms"));
    Thread inside = Must(runtime_->StartThread(
        "inside", [&] { static_cast<void>(gpushare_gpu_free(gpu_->handle(), memory.value())); }));
    runtime_->SleepFor(absl::Milliseconds(1));
    // The free comes while the context is being destroyed.
    Thread late = Must(runtime_->StartThread("late", [&] {
      runtime_->SleepFor(absl::Milliseconds(15));
      static_cast<void>(gpushare_gpu_free(gpu_->handle(), other.value()));
    }));
    own.reset();
    inside.Join();
    late.Join();
    ASSERT_OK(Inject("clear"));
    EXPECT_EQ(UsedOnDevice(), before) << fault;
    EXPECT_EQ(Must(RoomOf(*gpu_)).memory_left, GiB(7)) << fault;
  }
}

// One that the driver keeps for longer than the last handle waits. It leaves a virtual device that its own credit may end.
TEST_F(IsolationTest, AFreeThatOutlastsTheEndOfItsContextIsCredited) {
  for (const char* fault :
       {"slow call=cuMemFree_v2 host=20s", "error call=cuMemFree_v2 code=1 host=20s"}) {
    const uint64_t before = UsedOnDevice();
    std::optional<VirtualDevice> own = MakeDevice("own", "memory=4GiB,isolation=context");
    const DevicePtr memory = Must(Must(Allocator::Create(*own)).AllocateRaw(GiB(1)));
    ASSERT_OK(Inject(fault));
    const absl::Duration began = runtime_->Now();
    Thread inside = Must(runtime_->StartThread(
        "inside", [&] { static_cast<void>(gpushare_gpu_free(gpu_->handle(), memory.value())); }));
    runtime_->SleepFor(absl::Milliseconds(1));
    own.reset();
    EXPECT_LT(runtime_->Now() - began, absl::Seconds(19));
    inside.Join();
    EXPECT_GE(runtime_->Now() - began, absl::Seconds(20));
    ASSERT_OK(Inject("clear"));
    EXPECT_EQ(UsedOnDevice(), before) << fault;
    EXPECT_EQ(Must(RoomOf(*gpu_)).memory_left, GiB(7)) << fault;
  }
}

TEST_F(IsolationTest, AThreadKeepsNoContextThatHasEnded) {
  const auto current = runtime_->Symbol<int(CUctx_st**)>("cuCtxGetCurrent");
  CUctx_st* ended = nullptr;
  Thread thread = Must(runtime_->StartThread("uses", [&] {
    {
      const VirtualDevice shared = MakeDevice("shared", "");
      std::optional<VirtualDevice> own = MakeDevice("own", "isolation=context");
      EXPECT_OK(Must(Allocator::Create(*own)).Allocate(MiB(1)).status());
      EXPECT_EQ(current(&ended), 0);
      EXPECT_EQ(ended, own->native_context());
      // Another thread closes the last handle.
      Must(runtime_->StartThread("closes", [&own] { own.reset(); })).Join();
      EXPECT_OK(Must(Allocator::Create(shared)).Allocate(MiB(1)).status());
      CUctx_st* now = nullptr;
      EXPECT_EQ(current(&now), 0);
      EXPECT_EQ(now, shared.native_context());
      CUctx_st* popped = nullptr;
      EXPECT_EQ(pop_(&popped), 0);
      EXPECT_EQ(current(&now), 0);
      EXPECT_EQ(now, nullptr);
    }
  }));
  thread.Join();
}

// ---- foreign streams ----

TEST_F(IsolationTest, AStreamOfAnotherContextIsRefused) {
  const VirtualDevice shared = MakeDevice("shared", ""),
                      own = MakeDevice("own", "isolation=context"),
                      green = MakeDevice("green", "isolation=green,compute=24%");
  const VirtualDevice* const devices[] = {&shared, &own, &green};
  for (const VirtualDevice* to : devices) {
    for (const VirtualDevice* from : devices) {
      CUstream_st* const native = NativeIn(from->native_context());
      const auto bound = Stream::Bind(*to, native);
      if (to == from) {
        EXPECT_OK(bound.status());
      } else {
        EXPECT_EQ(bound.status().code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(bound.status().message()), HasSubstr("of another context"));
      }
      if (!bound.ok()) {
        EXPECT_EQ(destroy_(native), 0);
      }
    }
  }
}

}  // namespace
}  // namespace gpushare
