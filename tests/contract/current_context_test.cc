// SPDX-License-Identifier: Apache-2.0
// The current context: what the shim remembers equals what the driver would say, whatever a program's threads do and
// whichever hook changes it.
#include "driver/current_context.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/process_barrier.h"
#include "driver/driver.h"
#include "driver/symbols.h"
#include "shim/attach_abi.h"
#include "shim/hook.h"
#include "shim/process.h"
#include "tests/support/sim_control.h"

namespace gpushare::shim {
namespace {

using driver::CurrentContext;

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=1us blocks_per_sm=1
.visible .entry spin()
{
  ret;
}
)";

// The process is a tenant from the first test on, like a process with the preloaded library.
class CurrentContextTest : public ::testing::Test {
 protected:
  static driver::Driver& Opened() {
    static driver::Driver* const opened = [] {
      setenv("GPUSHARE_SPEC", "memory=1GiB,cap=90%", 1);
      setenv("GPUSHARE_SIM", "memory=4GiB,sms=100,clock=wall", 1);
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

  void SetUp() override {
    sim_ = std::make_unique<gpushare::testing::SimControl>(Opened());
    ASSERT_TRUE(Attached());
    ASSERT_EQ(Call<CUresult(unsigned)>("cuInit")(0), CUDA_SUCCESS);
  }
  void TearDown() override {
    CUcontext popped = nullptr;
    while (Call<CUresult(CUcontext*)>("cuCtxPopCurrent_v2")(&popped) == CUDA_SUCCESS) {
    }
  }

  const driver::Table& cu() const { return Opened().table(); }
  // The function as a program calls it: the hook, if there is one.
  template <typename Function>
  static Function* Call(const char* name) {
    void* const hook = FindHook(name);
    return reinterpret_cast<Function*>(hook != nullptr ? hook : RealEntry(name));
  }
  CUcontext Driver() const {
    CUcontext context = nullptr;
    EXPECT_EQ(cu().CtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
  }
  CUcontext Got() const {
    CUcontext context = nullptr;
    EXPECT_EQ(CurrentContext::Get(cu(), &context), CUDA_SUCCESS);
    return context;
  }
  CUcontext Create() const {
    CUcontext context = nullptr, popped = nullptr;
    EXPECT_EQ(Call<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&context, 0, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(Call<CUresult(CUcontext*)>("cuCtxPopCurrent_v2")(&popped), CUDA_SUCCESS);
    EXPECT_EQ(popped, context);
    return context;
  }

  // How often `call` asks the driver for the current context, not counting two queries for each of the gate's
  // markers. Returns the fewest of several tries, since the engine's own thread may ask at any time too.
  template <typename Does>
  uint64_t AsksOf(const Does& call) const {
    uint64_t fewest = UINT64_MAX;
    for (int i = 0; i < 5; ++i) {
      const uint64_t asked = sim_->calls("cuCtxGetCurrent"), marked = sim_->calls("cuEventRecord");
      call();
      const uint64_t markers = sim_->calls("cuEventRecord") - marked;
      const uint64_t asks = sim_->calls("cuCtxGetCurrent") - asked;
      fewest = std::min(fewest, asks - std::min(asks, 2 * markers));
    }
    return fewest;
  }

  std::unique_ptr<gpushare::testing::SimControl> sim_;
};

// Runs before all other tests, since a process opens its share of a GPU only once.
TEST_F(CurrentContextTest, AThreadWithoutAContextHasNoneWhenItsCallHasOpenedTheGpu) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(Driver(), nullptr);
  ASSERT_EQ(
      (Call<CUresult(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                     unsigned long long)>("cuMemCreate")(&handle, size_t{2} << 20, &properties, 0)),
      CUDA_SUCCESS);
  EXPECT_EQ(Driver(), nullptr);
  EXPECT_EQ(Got(), nullptr);
  EXPECT_EQ(Call<CUresult(CUmemGenericAllocationHandle)>("cuMemRelease")(handle), CUDA_SUCCESS);
}

// If the answer were out of memory, a framework would empty its caches and try again.
TEST_F(CurrentContextTest, WhereTheCurrentContextHasBeenDestroyedTheDriversAnswerIsGiven) {
  CUcontext const context = Create();
  ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxSetCurrent")(context), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(Call<CUresult(CUcontext)>("cuCtxDestroy_v2")(context), CUDA_SUCCESS);
  }).join();
  CUdeviceptr pointer = 0;
  EXPECT_EQ((Call<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&pointer, 4096)),
            CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(
      (Call<CUresult(CUdeviceptr*, size_t, CUstream)>("cuMemAllocAsync")(&pointer, 4096, nullptr)),
      CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(CurrentContextTest, TheDriverIsAskedOnce) {
  CUcontext const context = Create();
  ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxSetCurrent")(context), CUDA_SUCCESS);
  EXPECT_EQ(Got(), context);
  EXPECT_EQ(AsksOf([&] {
              for (int i = 0; i < 10; ++i) EXPECT_EQ(Got(), context);
            }),
            0u);
  EXPECT_EQ(CurrentContext::Kept(), context);
  ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxDestroy_v2")(context), CUDA_SUCCESS);
}

// Each hook that may change the calling thread's current context, with the arguments that it needs for that.
TEST_F(CurrentContextTest, EachHookForgetsWhatItMayChange) {
  CUcontext a = nullptr, b = nullptr, made = nullptr;
  const auto create = [&](const char* name) {
    EXPECT_EQ(Call<CUresult(CUcontext*, unsigned, CUdevice)>(name)(&made, 0, 0), CUDA_SUCCESS);
  };
  const auto set = [&](const char* name, CUcontext to) {
    EXPECT_EQ(Call<CUresult(CUcontext)>(name)(to), CUDA_SUCCESS);
  };
  const auto pop = [&](const char* name) {
    EXPECT_EQ(Call<CUresult(CUcontext*)>(name)(&made), CUDA_SUCCESS);
  };
  // A call that the simulated driver does not support is refused, and the remembered context is forgotten all the
  // same.
  const auto refused = [&](const char* name) {
    EXPECT_NE(Call<CUresult(void*, unsigned long, unsigned long, unsigned long, void*)>(name)(
                  nullptr, 0, 0, 0, nullptr),
              CUDA_SUCCESS);
  };
  struct Case {
    const char* name;
    std::function<void(const char*)> call;
    bool another = true;  // alternates between the contexts
  };
  const std::vector<Case> cases = {
      {"cuCtxSetCurrent", [&](auto name) { set(name, b); }},
      {"cuCtxSetCurrent", [&](auto name) { set(name, nullptr); }},
      {"cuCtxPushCurrent", [&](auto name) { set(name, b); }},
      {"cuCtxPushCurrent_v2", [&](auto name) { set(name, b); }},
      {"cuCtxPopCurrent", [&](auto name) { pop(name); }},
      {"cuCtxPopCurrent_v2", [&](auto name) { pop(name); }},
      {"cuCtxCreate", [&](auto name) { create(name); }},
      {"cuCtxCreate_v2", [&](auto name) { create(name); }},
      {"cuCtxCreate_v3",
       [&](auto name) {
         EXPECT_EQ(Call<CUresult(CUcontext*, void*, int, unsigned, CUdevice)>(name)(&made, nullptr,
                                                                                    0, 0, 0),
                   CUDA_SUCCESS);
       }},
      {"cuCtxCreate_v4",
       [&](auto name) {
         EXPECT_EQ(
             Call<CUresult(CUcontext*, void*, unsigned, CUdevice)>(name)(&made, nullptr, 0, 0),
             CUDA_SUCCESS);
       }},
      {"cuCtxDestroy", [&](auto name) { set(name, a); }},
      {"cuCtxDestroy_v2", [&](auto name) { set(name, a); }},
      {"cuCtxDetach", refused, false},
      {"cuCtxAttach", refused, false},
      {"cuGLCtxCreate", refused, false},
      {"cuGLCtxCreate_v2", refused, false},
      {"cuVDPAUCtxCreate", refused, false},
      {"cuVDPAUCtxCreate_v2", refused, false},
      {"cuCtxFromGreenCtx", refused, false},
      {"cuGreenCtxDestroy", refused, false},
      {"cuDevicePrimaryCtxRelease",
       [&](auto name) { EXPECT_NE(Call<CUresult(CUdevice)>(name)(77), CUDA_SUCCESS); }, false},
      {"cuDevicePrimaryCtxReset",
       [&](auto name) { EXPECT_NE(Call<CUresult(CUdevice)>(name)(77), CUDA_SUCCESS); }, false},
      {"cuDevicePrimaryCtxReset_v2",
       [&](auto name) { EXPECT_NE(Call<CUresult(CUdevice)>(name)(77), CUDA_SUCCESS); }, false},
      {"cuDevicePrimaryCtxRelease_v2",
       [&](auto name) { EXPECT_NE(Call<CUresult(CUdevice)>(name)(77), CUDA_SUCCESS); }, false},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    ASSERT_NE(FindHook(each.name), nullptr);
    a = Create();
    b = Create();
    ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxPushCurrent_v2")(a), CUDA_SUCCESS);
    ASSERT_EQ(Got(), a);
    ASSERT_EQ(CurrentContext::Kept(), a);
    each.call(each.name);
    EXPECT_EQ(CurrentContext::Kept(), nullptr);
    EXPECT_EQ(Got(), Driver());
    EXPECT_EQ(Got() != a, each.another);
  }
}

// Threads randomly do what programs do, each with the contexts of all threads. After each step the remembered context
// equals the driver's.
TEST_F(CurrentContextTest, WhateverThreadsDoItIsWhatTheDriverSays) {
  const char* const more = std::getenv("GPUSHARE_PROPERTY_CASES");
  const int steps = more != nullptr ? 400 * std::atoi(more) : 20000;
  constexpr int kThreads = 4;
  std::mutex mutex;  // no driver call is made while it is held
  std::array<CUcontext, 6> contexts{};
  for (CUcontext& each : contexts) each = Create();
  std::atomic<int> kept{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t) + 1);
      const auto any = [&] {
        const std::lock_guard<std::mutex> lock(mutex);
        return contexts[random() % contexts.size()];
      };
      for (int i = 0; i < steps; ++i) {
        CUcontext popped = nullptr;
        switch (random() % 16) {
          case 0:
          case 1:
            Call<CUresult(CUcontext)>("cuCtxSetCurrent")(any());
            break;
          case 2:
            Call<CUresult(CUcontext)>("cuCtxSetCurrent")(nullptr);
            break;
          case 3:
          case 4:
            Call<CUresult(CUcontext)>("cuCtxPushCurrent_v2")(any());
            break;
          case 5:
          case 6:
            Call<CUresult(CUcontext*)>("cuCtxPopCurrent_v2")(&popped);
            break;
          case 7: {  // usually a context that is current to other threads
            CUcontext made = nullptr;
            if (Call<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&made, 0, 0) !=
                CUDA_SUCCESS) {
              break;
            }
            {
              const std::lock_guard<std::mutex> lock(mutex);
              std::swap(contexts[random() % contexts.size()], made);
            }
            Call<CUresult(CUcontext)>("cuCtxDestroy_v2")(made);
            break;
          }
          case 8: {
            CUcontext primary = nullptr;
            Call<CUresult(CUcontext*, CUdevice)>("cuDevicePrimaryCtxRetain")(&primary, 0);
            Call<CUresult(CUcontext)>("cuCtxSetCurrent")(primary);
            if (random() % 2 == 0) Call<CUresult(CUdevice)>("cuDevicePrimaryCtxRelease_v2")(0);
            break;
          }
          case 9:
            if (random() % 8 == 0) Call<CUresult(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0);
            break;
          default:
            break;  // launches only
        }
        kept += CurrentContext::Kept() != nullptr ? 1 : 0;
        ASSERT_EQ(Got(), Driver()) << "step " << i;
        ASSERT_EQ(Got(), Driver()) << "step " << i;
      }
      CUcontext popped = nullptr;
      while (Call<CUresult(CUcontext*)>("cuCtxPopCurrent_v2")(&popped) == CUDA_SUCCESS) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(kept.load(), kThreads * steps / 8);  // otherwise the test would have tried nothing
  for (CUcontext each : contexts) Call<CUresult(CUcontext)>("cuCtxDestroy_v2")(each);
}

// The default stream is a different stream in each context, and a launch knows which one is meant without asking the
// driver.
TEST_F(CurrentContextTest, ALaunchOnADefaultStreamIsTheCurrentContexts) {
  if (!base::HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  using LaunchKernel = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned, CUstream, void**, void**);
  struct Place {
    CUcontext context = nullptr;
    CUfunction function = nullptr;
  };
  std::array<Place, 2> places;
  for (Place& each : places) {
    CUmodule module = nullptr;
    each.context = Create();
    ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxSetCurrent")(each.context), CUDA_SUCCESS);
    ASSERT_EQ(cu().ModuleLoadData(&module, kPtx), CUDA_SUCCESS);
    ASSERT_EQ(cu().ModuleGetFunction(&each.function, module, "spin"), CUDA_SUCCESS);
  }
  work::Calls& calls = Process::Get().calls();
  size_t streams = calls.known_streams();
  for (const char* name : {"cuLaunchKernel", "cuLaunchKernel_ptsz"}) {
    SCOPED_TRACE(name);
    const auto launch = [&](const Place& at) {
      return Call<LaunchKernel>(name)(at.function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
    };
    for (const Place& each : places) {
      ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxSetCurrent")(each.context), CUDA_SUCCESS);
      ASSERT_EQ(launch(each), CUDA_SUCCESS);
      EXPECT_EQ(calls.known_streams(), ++streams);
      for (int i = 0; i < 2000; ++i) {
        ASSERT_EQ(launch(each), CUDA_SUCCESS);
        if (i % 20 == 0) {
          ASSERT_EQ(Call<CUresult()>("cuCtxSynchronize")(), CUDA_SUCCESS);
        }
      }
      // The gate asks only for the next grant and around its markers. If the device is idle between launches, that is
      // one query for each launch; this also happens on a busy machine.
      const uint64_t asks = AsksOf([&] {
        for (int i = 0; i < 400; ++i) {
          ASSERT_EQ(launch(each), CUDA_SUCCESS);
          if (i % 20 == 19) {
            ASSERT_EQ(Call<CUresult()>("cuCtxSynchronize")(), CUDA_SUCCESS);
          }
        }
      });
      EXPECT_LT(asks, 200u);
    }
    // In turns: the driver refuses a kernel that is launched in another context.
    for (size_t i = 0; i < 400; ++i) {
      const Place &here = places[i % 2], &there = places[(i + 1) % 2];
      ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxSetCurrent")(here.context), CUDA_SUCCESS);
      for (size_t k = 0; k < i % 5; ++k) ASSERT_EQ(launch(here), CUDA_SUCCESS);
      ASSERT_EQ(launch(there), CUDA_ERROR_INVALID_HANDLE);
    }
    EXPECT_EQ(calls.known_streams(), streams);
    for (const Place& each : places) {
      ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxSetCurrent")(each.context), CUDA_SUCCESS);
      ASSERT_EQ(Call<CUresult()>("cuCtxSynchronize")(), CUDA_SUCCESS);
    }
  }
  // A library's kernel is launched in whichever context is current, by the same handle.
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(Call<decltype(cuLibraryLoadData)>("cuLibraryLoadData")(&library, kPtx, nullptr, nullptr,
                                                                   0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(Call<decltype(cuLibraryGetKernel)>("cuLibraryGetKernel")(&kernel, library, "spin"),
            CUDA_SUCCESS);
  const auto launch = [&] {
    return Call<LaunchKernel>("cuLaunchKernel")(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 32,
                                                1, 1, 0, nullptr, nullptr, nullptr);
  };
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(launch(), CUDA_SUCCESS);
    if (i % 20 == 0) {
      ASSERT_EQ(Call<CUresult()>("cuCtxSynchronize")(), CUDA_SUCCESS);
    }
  }
  CUcontext const third = Create();
  ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxSetCurrent")(third), CUDA_SUCCESS);
  ASSERT_EQ(Got(), third);
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(calls.known_streams(), ++streams);
  ASSERT_EQ(Call<CUresult()>("cuCtxSynchronize")(), CUDA_SUCCESS);
  ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxDestroy_v2")(third), CUDA_SUCCESS);
  --streams;
  // The launch also notices when a context ends.
  std::thread([&] {
    EXPECT_EQ(Call<CUresult(CUcontext)>("cuCtxDestroy_v2")(places[0].context), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(calls.known_streams(), streams - 2);
  ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxDestroy_v2")(places[1].context), CUDA_SUCCESS);
}

// A context that another thread destroys may be current to nobody any more, and its address may be reused: all
// threads ask again.
TEST_F(CurrentContextTest, WhatAnotherThreadEndsIsAskedForAgain) {
  CUcontext const context = Create();
  ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxSetCurrent")(context), CUDA_SUCCESS);
  ASSERT_EQ(Got(), context);
  std::thread([&] {
    EXPECT_EQ(Call<CUresult(CUcontext)>("cuCtxDestroy_v2")(context), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(CurrentContext::Kept(), nullptr);
  EXPECT_EQ(Got(), Driver());
}

// Runs last: afterwards this process does not remember current contexts any more.
TEST_F(CurrentContextTest, OnceThereAreOtherWaysEachLaunchAsks) {
  // The simulated driver has no such tables, and the refused call changes nothing.
  CUcontext const context = Create();
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxSetCurrent")(context), CUDA_SUCCESS);
  ASSERT_EQ(cu().ModuleLoadData(&module, kPtx), CUDA_SUCCESS);
  ASSERT_EQ(cu().ModuleGetFunction(&spin, module, "spin"), CUDA_SUCCESS);
  const auto launch = [&] {
    return Call<CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, CUstream, void**, void**)>("cuLaunchKernel")(
        spin, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
  };
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(launch(), CUDA_SUCCESS);
    if (i % 20 == 0) {
      ASSERT_EQ(Call<CUresult()>("cuCtxSynchronize")(), CUDA_SUCCESS);
    }
  }
  ASSERT_EQ(Got(), context);
  const void* table = nullptr;
  const CUuuid id{};
  EXPECT_NE(Call<CUresult(const void**, const CUuuid*)>("cuGetExportTable")(&table, &id),
            CUDA_SUCCESS);
  EXPECT_EQ(CurrentContext::Kept(), context);
  CurrentContext::End();
  const uint64_t before = sim_->calls("cuCtxGetCurrent");
  for (int i = 0; i < 100; ++i) ASSERT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_GE(sim_->calls("cuCtxGetCurrent") - before, 100u);
  EXPECT_EQ(CurrentContext::Kept(), nullptr);
  ASSERT_EQ(Call<CUresult(CUcontext)>("cuCtxDestroy_v2")(context), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpushare::shim
