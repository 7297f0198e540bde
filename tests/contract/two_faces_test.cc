// SPDX-License-Identifier: Apache-2.0
// A preloaded program that also uses the SDK: both faces share the same books, whichever of them allocates or frees.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "driver/driver.h"
#include "driver/symbols.h"
#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"
#include "shim/attach_abi.h"
#include "shim/hook.h"
#include "shim/process.h"
#include "tests/support/must.h"
#include "tests/support/sim_control.h"

namespace gpushare::shim {
namespace {

#define ASSERT_CU(call) ASSERT_EQ(CUDA_SUCCESS, (call))
#define EXPECT_CU(call) EXPECT_EQ(CUDA_SUCCESS, (call))

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry breaks(.param .u64 ns)
{
  ret;
}
)";

// The process has a share of 64 MiB of a GPU of 4 GiB.
class TwoFaces : public ::testing::Test {
 protected:
  static driver::Driver& Opened() {
    static driver::Driver* const opened = [] {
      setenv("GPUSHARE_SPEC", "memory=64MiB", 1);
      setenv("GPUSHARE_OVER_QUOTA", "wait=100ms", 1);
      setenv("GPUSHARE_SIM", "memory=4GiB,devices=2,sms=100,clock=virtual,pool_granule=2MiB", 1);
      auto made = driver::Driver::Open({.path = "sim"});
      return made.ok() ? made->release() : nullptr;
    }();
    return *opened;
  }
  static bool Attached() {
    static const bool attached = [] {
      static std::vector<void*> functions;
      void* const handle = dlopen(Opened().path().c_str(), RTLD_NOW | RTLD_NOLOAD);
      if (handle == nullptr) return false;
      for (const driver::Symbol& symbol : driver::Symbols()) {
        functions.push_back(dlsym(handle, std::string(symbol.name).c_str()));
      }
      const gpushare_shim_driver about = {
          GPUSHARE_SHIM_ABI_VERSION, 0, handle, Opened().path().c_str(), functions.data(), nullptr};
      const gpushare_shim_hook* hooks = nullptr;
      size_t count = 0;
      return gpushare_shim_attach(&about, &hooks, &count) == 0;
    }();
    return attached;
  }
  template <typename Function>
  static Function* Hook(const char* name) {
    void* const hook = FindHook(name);
    EXPECT_NE(hook, nullptr) << name;
    return reinterpret_cast<Function*>(hook);
  }

  void SetUp() override {
    sim_ = std::make_unique<gpushare::testing::SimControl>(Opened());
    ASSERT_TRUE(Attached());
    sim_->thread_enter("test");
    const driver::Table& driver = Process::Get().driver();
    ASSERT_CU(driver.DevicePrimaryCtxRetain(&context_, 0));
    ASSERT_CU(driver.CtxPushCurrent(context_));
    runtime_.emplace(Must(Runtime::Create()));
    gpu_.emplace(Must(Gpu::Open(*runtime_)));
    share_.emplace(Must(VirtualDevice::Resolve(*gpu_)));
    alloc_ = Hook<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc_v2");
    free_ = Hook<CUresult(CUdeviceptr)>("cuMemFree_v2");
  }
  void TearDown() override {
    EXPECT_EQ(Used(), 0u);
    EXPECT_EQ(Must(share_->stats()).memory.allocations, 0u);
    EXPECT_TRUE(Process::Get().books().CheckInvariants().ok());
    share_.reset();
    CUcontext popped = nullptr;
    EXPECT_CU(Process::Get().driver().CtxPopCurrent(&popped));
    sim_->thread_leave();
  }
  uint64_t Used() { return Must(share_->stats()).memory.used.count(); }

  std::unique_ptr<gpushare::testing::SimControl> sim_;
  CUcontext context_ = nullptr;
  std::optional<Runtime> runtime_;
  std::optional<Gpu> gpu_;
  std::optional<VirtualDevice> share_;
  CUresult (*alloc_)(CUdeviceptr*, size_t) = nullptr;
  CUresult (*free_)(CUdeviceptr) = nullptr;
};

TEST_F(TwoFaces, WhatTheSdkAllocatedTheProgramFrees) {
  const Allocator memory = Must(Allocator::Create(*share_));
  const DevicePtr pointer = Must(memory.AllocateRaw(MiB(40)));
  EXPECT_EQ(Used(), MiB(40).count());
  EXPECT_CU(free_(pointer.value()));
  EXPECT_EQ(Used(), 0u);
  // Both faces can allocate it.
  CUdeviceptr next = 0;
  EXPECT_CU(alloc_(&next, MiB(60).count()));
  EXPECT_CU(free_(next));
}

TEST_F(TwoFaces, WhatTheProgramAllocatedTheSdkFrees) {
  const Allocator memory = Must(Allocator::Create(*share_));
  CUdeviceptr pointer = 0;
  ASSERT_CU(alloc_(&pointer, MiB(40).count()));
  EXPECT_EQ(Used(), MiB(40).count());
  EXPECT_TRUE(memory.Free(DevicePtr(pointer)).ok());
  EXPECT_EQ(Used(), 0u);
}

TEST_F(TwoFaces, WhatLiesIdleInTheSdksPoolsIsTheProgramsAsWell) {
  const Allocator pool =
      Must(Allocator::Create(*share_, {.strategy = AllocationStrategy::kSuballocating}));
  EXPECT_TRUE(pool.Free(Must(pool.AllocateRaw(MiB(40)))).ok());
  EXPECT_GE(Used(), MiB(40).count());
  CUdeviceptr pointer = 0;
  ASSERT_CU(alloc_(&pointer, MiB(60).count()));
  EXPECT_EQ(Must(share_->stats()).memory.denied, 0u);
  EXPECT_CU(free_(pointer));
}

TEST_F(TwoFaces, WhatLiesIdleInTheProgramsPoolsIsTheSdksAsWell) {
  const auto alloc_async = Hook<CUresult(CUdeviceptr*, size_t, CUstream)>("cuMemAllocAsync");
  const auto free_async = Hook<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync");
  const auto threshold =
      Hook<CUresult(CUmemoryPool, CUmemPool_attribute, void*)>("cuMemPoolSetAttribute");
  CUmemoryPool pool = nullptr;
  ASSERT_CU(Process::Get().driver().DeviceGetMemPool(&pool, 0));
  uint64_t keep = UINT64_MAX;
  ASSERT_CU(threshold(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUdeviceptr pointer = 0;
  ASSERT_CU(alloc_async(&pointer, MiB(40).count(), nullptr));
  ASSERT_CU(free_async(pointer, nullptr));
  ASSERT_CU(Process::Get().driver().StreamSynchronize(nullptr));
  EXPECT_GE(Used(), MiB(40).count());
  const Allocator memory = Must(Allocator::Create(*share_));
  const auto got = memory.Allocate(MiB(60));
  EXPECT_TRUE(got.ok()) << got.status();
}

// The driver would free the segment under its pool, or refuse what does not begin one.
TEST_F(TwoFaces, WhatLiesInTheSdksPoolsTheProgramFreesThere) {
  const auto free_async = Hook<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync");
  const driver::Table& driver = Process::Get().driver();
  CUstream stream = nullptr;
  ASSERT_CU(driver.StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  for (const auto strategy : {AllocationStrategy::kSuballocating, AllocationStrategy::kPool,
                              AllocationStrategy::kSwappable}) {
    const Allocator pool = Must(Allocator::Create(*share_, {.strategy = strategy}));
    const DevicePtr pointers[] = {Must(pool.AllocateRaw(MiB(2))), Must(pool.AllocateRaw(MiB(2)))};
    for (const DevicePtr pointer : pointers) {
      ASSERT_CU(driver.MemsetD8Async(pointer.value(), 1, MiB(2).count(), stream));
      EXPECT_CU(free_(pointer.value()));
      EXPECT_CU(driver.StreamQuery(stream));  // it waits for who uses the memory
    }
    EXPECT_EQ(free_(pointers[0].value()), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Must(share_->stats()).memory.allocations,
              strategy == AllocationStrategy::kSuballocating ? 1u : 0u);  // a segment
    const Allocation again = Must(pool.Allocate(MiB(2)));
    const auto set = Hook<CUresult(CUdeviceptr, unsigned char, size_t)>("cuMemsetD8_v2");
    EXPECT_CU(set(again.pointer().value(), 1, MiB(2).count()));
  }
  // In the order of a stream it is that stream's until it has come so far.
  const Allocator pool =
      Must(Allocator::Create(*share_, {.strategy = AllocationStrategy::kSuballocating}));
  const DevicePtr pointer = Must(pool.AllocateRaw(MiB(24)));
  ASSERT_CU(driver.MemsetD8Async(pointer.value(), 1, MiB(24).count(), stream));
  EXPECT_CU(free_async(pointer.value(), stream));
  EXPECT_EQ(free_async(pointer.value(), stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.StreamQuery(stream), CUDA_ERROR_NOT_READY);
  const DevicePtr again = Must(pool.Allocate(MiB(24))).pointer();
  EXPECT_TRUE(again != pointer || driver.StreamQuery(stream) == CUDA_SUCCESS);
  ASSERT_CU(driver.StreamSynchronize(stream));
  EXPECT_CU(driver.StreamDestroy(stream));
}

// The SDK does not see the program's streams: a suspension waits for the whole context before swappable memory leaves.
TEST_F(TwoFaces, ASuspensionWaitsForWhatTheProgramRuns) {
  const auto set = Hook<CUresult(CUdeviceptr, unsigned char, size_t, CUstream)>("cuMemsetD8Async");
  const Allocator memory =
      Must(Allocator::Create(*share_, {.strategy = AllocationStrategy::kSwappable}));
  const Allocation some = Must(memory.Allocate(MiB(8)));
  ASSERT_CU(set(some.pointer().value(), 1, MiB(8).count(), nullptr));
  const uint64_t waits = sim_->calls("cuCtxSynchronize");
  ASSERT_TRUE(share_->Suspend().ok());
  EXPECT_GT(sim_->calls("cuCtxSynchronize"), waits);
  EXPECT_EQ(Used(), 0u);
  ASSERT_TRUE(share_->Resume().ok());
}

// What the program allocated in a virtual device's own context ends with it, and is charged to the program.
// CUDA lets nobody wait for a context where a stream captures, and breaks the capture.
TEST_F(TwoFaces, WhatTheProgramCapturesNoWaitOfTheSdksBreaks) {
  const driver::Table& driver = Process::Get().driver();
  const auto begin = Hook<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  const auto end = Hook<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture");
  CUstream captured = nullptr, busy = nullptr;
  ASSERT_CU(driver.StreamCreateWithPriority(&captured, CU_STREAM_NON_BLOCKING, 0));
  ASSERT_CU(driver.StreamCreateWithPriority(&busy, CU_STREAM_NON_BLOCKING, 0));
  ASSERT_CU(begin(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (const auto strategy : {AllocationStrategy::kSuballocating, AllocationStrategy::kPool,
                              AllocationStrategy::kSwappable}) {
    const Allocator memory = Must(Allocator::Create(*share_, {.strategy = strategy}));
    const DevicePtr pointer = Must(memory.AllocateRaw(MiB(2)));
    ASSERT_CU(driver.MemsetD8Async(pointer.value(), 1, MiB(2).count(), busy));
    EXPECT_CU(free_(pointer.value()));
    EXPECT_CU(driver.StreamQuery(busy));  // it waited for who uses the memory all the same
  }
  const Allocator swappable =
      Must(Allocator::Create(*share_, {.strategy = AllocationStrategy::kSwappable}));
  const Allocation some = Must(swappable.Allocate(MiB(2)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(share_->Suspend()));
  CUgraph graph = nullptr;
  EXPECT_CU(end(captured, &graph));
  EXPECT_TRUE(share_->Suspend().ok());
  EXPECT_TRUE(share_->Resume().ok());
  EXPECT_CU(driver.StreamDestroy(captured));
  EXPECT_CU(driver.StreamDestroy(busy));
}

TEST_F(TwoFaces, AnOwnContextEndsWithWhatTheProgramHasInIt) {
  const Tenant tenant = Must(Tenant::Create(*runtime_, {.name = "a"}));
  std::optional<VirtualDevice> own =
      Must(VirtualDevice::Create(*gpu_, tenant, "memory=1GiB,isolation=context"));
  const auto push = Hook<CUresult(CUcontext)>("cuCtxPushCurrent_v2");
  const auto pop = Hook<CUresult(CUcontext*)>("cuCtxPopCurrent_v2");
  ASSERT_CU(push(own->native_context()));
  CUdeviceptr pointer = 0;
  EXPECT_CU(alloc_(&pointer, MiB(8).count()));
  CUcontext popped = nullptr;
  EXPECT_CU(pop(&popped));
  EXPECT_EQ(Used(), MiB(8).count());
  own.reset();
  EXPECT_EQ(Used(), 0u);
}

// A virtual device of the SDK's on a GPU that the program does not use itself: nothing keeps that open.
class TwoFacesOnAnotherGpu : public TwoFaces {
 protected:
  void SetUp() override {
    TwoFaces::SetUp();
    const driver::Table& driver = Process::Get().driver();
    ASSERT_CU(driver.DevicePrimaryCtxRetain(&another_, 1));
    ASSERT_CU(driver.CtxPushCurrent(another_));
    ASSERT_CU(driver.StreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0));
    second_.emplace(Must(Gpu::Open(*runtime_, "1")));
    const Tenant tenant = Must(Tenant::Create(*runtime_, {.name = "a"}));
    device_.emplace(Must(VirtualDevice::Create(*second_, tenant, "memory=1GiB")));
    pointer_ = Must(Must(Allocator::Create(*device_)).AllocateRaw(MiB(512))).value();
  }
  void TearDown() override {
    const driver::Table& driver = Process::Get().driver();
    CUcontext popped = nullptr;
    EXPECT_CU(driver.StreamDestroy(stream_));
    EXPECT_CU(driver.CtxPopCurrent(&popped));
    EXPECT_CU(driver.DevicePrimaryCtxRelease(1));
    TwoFaces::TearDown();
  }
  void FreeInStream() {
    EXPECT_CU((Hook<CUresult(CUdeviceptr, CUstream)>("cuMemFreeAsync")(pointer_, stream_)));
    EXPECT_EQ(Must(device_->stats()).memory.used, MiB(512));
    device_.reset();
  }

  CUcontext another_ = nullptr;
  CUstream stream_ = nullptr;
  std::optional<Gpu> second_;
  std::optional<VirtualDevice> device_;
  CUdeviceptr pointer_ = 0;
};

TEST_F(TwoFacesOnAnotherGpu, AGpuClosesWhenStreamsHaveReachedTheProgramsFrees) {
  ASSERT_CU(Process::Get().driver().MemsetD8Async(pointer_, 1, MiB(512).count(), stream_));
  FreeInStream();
  EXPECT_EQ(CUDA_ERROR_NOT_READY, Process::Get().driver().StreamQuery(stream_));
  EXPECT_TRUE(second_->Close().ok());
  EXPECT_CU(Process::Get().driver().StreamQuery(stream_));
  Process::Get().books().Settle();
}

TEST_F(TwoFacesOnAnotherGpu, AGpuGivesUpOnFreesThatAreNeverReachedAndNamesThem) {
  const auto wait = reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(
      Process::Get().Real("cuStreamWaitValue32_v2"));
  const auto write = reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(
      Process::Get().Real("cuStreamWriteValue32_v2"));
  const driver::Table& driver = Process::Get().driver();
  CUdeviceptr flag = 0;
  ASSERT_CU(driver.MemAlloc(&flag, 4));
  ASSERT_CU(driver.MemsetD8Async(flag, 0, 4, stream_));
  ASSERT_CU(wait(stream_, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  FreeInStream();
  const absl::Status closed = second_->Close();
  EXPECT_EQ(closed.code(), absl::StatusCode::kDeadlineExceeded) << closed;
  EXPECT_THAT(std::string(closed.message()),
              ::testing::HasSubstr("work of tenant 'a' (512 MiB freed in a stream) still runs"));
  // When the stream comes to it, nobody is credited any more.
  CUstream other = nullptr;
  ASSERT_CU(driver.StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
  EXPECT_CU(write(other, flag, 1, 0));
  EXPECT_CU(driver.StreamSynchronize(stream_));
  Process::Get().books().Settle();
  EXPECT_CU(driver.StreamDestroy(other));
  EXPECT_CU(driver.MemFree(flag));
}

// Where the context is lost no stream comes to anything more.
TEST_F(TwoFacesOnAnotherGpu, AGpuWhoseContextIsLostWaitsForNoFrees) {
  const auto wait = reinterpret_cast<CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned)>(
      Process::Get().Real("cuStreamWaitValue32_v2"));
  const driver::Table& driver = Process::Get().driver();
  CUdeviceptr flag = 0;
  ASSERT_CU(driver.MemAlloc(&flag, 4));
  ASSERT_CU(driver.MemsetD8Async(flag, 0, 4, stream_));
  ASSERT_CU(wait(stream_, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
  {
    const Tenant tenant = Must(Tenant::Create(*runtime_, {.name = "b"}));
    const VirtualDevice breaks = Must(VirtualDevice::Create(*second_, tenant, ""));
    const Module module = Must(Module::Load(*second_, kPtx));
    FreeInStream();
    char error[256] = "";
    ASSERT_EQ(0, sim_->inject("illegal_address kernel=breaks", error, sizeof error)) << error;
    const Stream stream = Must(Stream::Create(breaks));
    ASSERT_TRUE(stream
                    .Launch(Must(module.GetFunction("breaks")), {.grid = {1}, .block = {32}},
                            uint64_t{1000})
                    .ok());
    EXPECT_FALSE(stream.Synchronize().ok());
    ASSERT_EQ(0, sim_->inject("clear", error, sizeof error)) << error;
  }
  const absl::Duration began = runtime_->Now();
  const absl::Status closed = second_->Close();
  EXPECT_TRUE(closed.ok()) << closed;
  EXPECT_LT(runtime_->Now() - began, absl::Seconds(1));
  Process::Get().books().Settle();
}

// A graph of the SDK's copies is known to the books when the program launches it.
TEST_F(TwoFaces, AGraphOfTheSdksIsKnownToTheProgramsCalls) {
  const Allocator memory = Must(Allocator::Create(*share_));
  const Stream stream = Must(Stream::Create(*share_));
  const Allocation there = Must(memory.Allocate(MiB(1)));
  const std::vector<uint8_t> host(MiB(1).count());
  ASSERT_TRUE(stream.BeginCapture().ok());
  ASSERT_TRUE(stream.CopyToDeviceAsync(there.pointer(), host.data(), MiB(1)).ok());
  const Graph graph = Must(stream.EndCapture());
  const auto launch = Hook<CUresult(CUgraphExec, CUstream)>("cuGraphLaunch");
  const auto synchronize = Hook<CUresult()>("cuCtxSynchronize");
  const Bytes before = Must(share_->stats()).h2d.bytes;
  EXPECT_CU(launch(graph.native(), nullptr));
  EXPECT_CU(synchronize());
  EXPECT_EQ(Must(share_->stats()).h2d.bytes, before + MiB(1));
}

// A request that may wait queues behind the ones that wait already, whichever face they came through.
TEST_F(TwoFaces, NobodyOvertakesWhoWaits) {
  const Allocator memory = Must(Allocator::Create(*share_)),
                  patient = Must(Allocator::Create(*share_, {.over_quota = OverQuota::kWait}));
  const DevicePtr held = Must(memory.AllocateRaw(MiB(40)));
  std::vector<std::string> served;
  Thread first = Must(runtime_->StartThread("sdk", [&] {
    const auto got = patient.Allocate(MiB(60));
    EXPECT_TRUE(got.ok()) << got.status();
    served.push_back("sdk");
  }));
  runtime_->SleepFor(absl::Milliseconds(1));
  Thread second = Must(runtime_->StartThread("program", [&] {
    ASSERT_CU(Process::Get().driver().CtxPushCurrent(context_));
    CUdeviceptr pointer = 0;
    EXPECT_CU(alloc_(&pointer, MiB(16).count()));  // there is room for this one
    served.push_back("program");
    EXPECT_CU(free_(pointer));
  }));
  runtime_->SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(served.empty());
  EXPECT_CU(free_(held.value()));
  first.Join();
  second.Join();
  EXPECT_THAT(served, ::testing::ElementsAre("sdk", "program"));
}

}  // namespace
}  // namespace gpushare::shim
