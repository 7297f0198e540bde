// SPDX-License-Identifier: Apache-2.0
// The hook of cuLaunchKernel that is written in assembly: it passes the program's arguments to the driver, charges
// the launch in the books, and returns whatever the driver returns or throws.
#include "shim/launch_kernel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "base/process_barrier.h"
#include "driver/current_context.h"
#include "gate/pocket.h"
#include "tests/contract/work_bed.h"
#include "work/recent.h"

namespace gpushare::work {
namespace {

struct Parameters {
  CUfunction function;
  unsigned grid[3], block[3], bytes;
  CUstream stream;
  void **params, **extra;
  bool operator==(const Parameters&) const = default;
};

// On other platforms the hook is the C++ code of Calls::LaunchKernelAgain() on the process's own books, which this
// test does not have.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
constexpr bool kInAssembly = true;
#else
constexpr bool kInAssembly = false;
#endif

enum class Does { kLaunch, kRefuse, kThrow };
Does does;
Parameters got;
bool was_inside;
const void* called_from;
decltype(driver::Table::LaunchKernel) real;

CUresult Driver(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                unsigned bz, unsigned bytes, CUstream stream, void** params, void** extra) {
  got = {f, {gx, gy, gz}, {bx, by, bz}, bytes, stream, params, extra};
  was_inside = Outermost::Inside();
  called_from = __builtin_return_address(0);
  if (does == Does::kRefuse) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (does == Does::kThrow) throw 7;  // unwinds like a thread that is cancelled there
  return real(f, gx, gy, gz, bx, by, bz, bytes, stream, params, nullptr);
}

class LaunchKernelTest : public WorkTest {
 protected:
  void SetUp() override {
    WorkTest::SetUp();
    real = cu_->LaunchKernel;
    does = Does::kLaunch;
    table().LaunchKernel = &Driver;
    shim::LaunchKernelsBy(*calls_, *cu_);
    if (!kInAssembly) GTEST_SKIP() << "the hook is not in assembly here";
    if (!base::HasProcessBarrier()) GTEST_SKIP() << "the kernel has no membarrier()";
  }
  void TearDown() override {
    table().LaunchKernel = real;
    WorkTest::TearDown();
  }
  driver::Table& table() { return const_cast<driver::Table&>(*cu_); }
  // Every parameter has a different value.
  Parameters On(CUstream stream) {
    return {spin_, {3, 2, 5}, {32, 4, 7}, 64, stream, params_, extra_};
  }

  CUresult By(shim::LaunchKernelFunction* hook, const Parameters& p) {
    return hook(p.function, p.grid[0], p.grid[1], p.grid[2], p.block[0], p.block[1], p.block[2],
                p.bytes, p.stream, p.params, p.extra);
  }
  bool Again(const Parameters& p) {
    CUresult result = CUDA_SUCCESS;
    const bool again = calls_->LaunchKernelAgain(nullptr, p.function, p.grid[0], p.grid[1],
                                                 p.grid[2], p.block[0], p.block[1], p.block[2],
                                                 p.bytes, p.stream, p.params, p.extra, &result);
    EXPECT_CU(result);
    return again;
  }
  // Whether the hook itself called the driver, not the C++ function that it leaves all other launches to.
  static bool WasInAssembly(shim::LaunchKernelFunction* hook) {
    const auto from = reinterpret_cast<uintptr_t>(called_from) - reinterpret_cast<uintptr_t>(hook);
    return from < 1024;  // it is shorter
  }
  // Launches until the launch is known and there is credit for several more, so that the hook takes its fast path.
  void Prepare(const Tenant& t, const Parameters& p) {
    for (int i = 0; i < 2000; ++i) {
      if (i % 20 == 0 && i < 1000) {
        ASSERT_CU(calls_->CtxSynchronize(t.payer()));
      }
      if (Again(p)) {
        const gate::Pocket* const pocket = t.gate->PocketHere();
        ASSERT_NE(pocket, nullptr);
        if (i > 1000 && gate::TenantPage::CreditOf(pocket->limit.load()) >
                            gate::TenantPage::CreditOf(pocket->spent.load()) + 40'000) {
          return;
        }
        continue;
      }
      ASSERT_CU(calls_->LaunchKernel(t.payer(), p.function, p.grid[0], p.grid[1], p.grid[2],
                                     p.block[0], p.block[1], p.block[2], p.bytes, p.stream,
                                     p.params, p.extra));
    }
    FAIL() << "it never became a habit";
  }

  uint64_t ns_ = 10'000;
  void* params_[1] = {&ns_};
  void* extra_[1] = {nullptr};
};

TEST_F(LaunchKernelTest, TheDriverGetsWhatTheProgramGaveAndAnswers) {
  const Tenant& t = Weighing(1);
  const Parameters all = On(t.stream);
  for (const bool per_thread : {false, true}) {
    shim::LaunchKernelFunction* const hook = shim::LaunchKernelHook(per_thread);
    for (const Does next : {Does::kLaunch, Does::kRefuse, Does::kThrow}) {
      ASSERT_NO_FATAL_FAILURE(Prepare(t, all));
      const uint64_t before = t.gate->stats().launches;
      got = {};
      does = next;
      if (next == Does::kThrow) {
        EXPECT_THROW(By(hook, all), int);
      } else {
        EXPECT_EQ(By(hook, all),
                  next == Does::kRefuse ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS);
      }
      does = Does::kLaunch;
      EXPECT_EQ(got, all);
      EXPECT_TRUE(was_inside);
      EXPECT_FALSE(Outermost::Inside());
      // The next launch takes the same path, and no launch was counted that did not run.
      EXPECT_CU(By(hook, all));
      ASSERT_CU(calls_->CtxSynchronize(t.payer()));
      Rest();
      const uint64_t of_it = next == Does::kRefuse ? 0 : 1;
      EXPECT_EQ(t.gate->stats().launches - before, of_it + 1);
      EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
    }
  }
}

// The variant of the hook says what a null stream means, and the driver is not asked again for the current context.
TEST_F(LaunchKernelTest, OnADefaultStreamTheDriverGetsTheSame) {
  driver::CurrentContext::Begin();
  const Tenant& t = Weighing(1);
  struct Case {
    bool per_thread;
    CUstream given, meant;
  };
  for (const Case& each :
       {Case{false, nullptr, nullptr}, Case{false, CU_STREAM_LEGACY, CU_STREAM_LEGACY},
        Case{false, CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD},
        Case{true, nullptr, CU_STREAM_PER_THREAD}, Case{true, CU_STREAM_LEGACY, CU_STREAM_LEGACY},
        Case{true, CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD}}) {
    SCOPED_TRACE(::testing::Message() << each.per_thread << " " << each.given);
    const Parameters meant = On(each.meant);
    Parameters given = meant;
    given.stream = each.given;
    ASSERT_NO_FATAL_FAILURE(Prepare(t, meant));
    const uint64_t launches = t.gate->stats().launches, asked = CallsOf("cuCtxGetCurrent");
    for (int i = 0; i < 3; ++i) {
      got = {};
      // The driver may overwrite its arguments; what the caller has on the stack beside them is unchanged.
      EXPECT_CU(By(shim::LaunchKernelHook(each.per_thread), given));
      EXPECT_EQ(got, meant);
    }
    EXPECT_EQ(CallsOf("cuCtxGetCurrent"), asked);
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    Rest();
    EXPECT_EQ(t.gate->stats().launches - launches, 3u);
    EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
  }
}

// The launch is charged what the C++ code would charge, by the current list of prices. The driver gets the same
// arguments whether or not the price had to be computed anew.
TEST_F(LaunchKernelTest, ItIsChargedByThePricesOfNow) {
  const Tenant& t = Weighing(1);
  ns_ = 1'000;
  const Parameters all = On(t.stream);
  shim::LaunchKernelFunction* const hook = shim::LaunchKernelHook(/*per_thread=*/false);
  ASSERT_NO_FATAL_FAILURE(Prepare(t, all));
  gate::Pocket* const pocket = t.gate->PocketHere();
  const auto charged = [&](bool in_assembly) {
    const uint64_t before = pocket->spent.load();
    got = {};
    if (in_assembly) {
      EXPECT_CU(By(hook, all));
    } else {
      EXPECT_TRUE(Again(all));
    }
    EXPECT_EQ(got, all);
    return pocket->spent.load() - before;
  };
  // Finds the tenant's page through a stream on which nobody launches.
  const auto added = t.gate->AddStream(NewStream(t));
  ASSERT_TRUE(added.ok()) << added.status();
  std::atomic<uint64_t>& units = gate::Gate::LaneOf(**added).page->charge_units;
  const uint64_t full = units.load();
  const uint64_t charge = charged(false);
  EXPECT_EQ(charged(true), charge);
  units.store(full / 2);
  // The change has not been announced.
  EXPECT_EQ(charged(true), charge);
  uint64_t prices = pocket->prices.load() + 1000;
  for (const bool first_in_assembly : {true, false}) {
    for (const uint64_t now : {full / 2, full / 3, full}) {
      units.store(now);
      pocket->prices.store(++prices);
      const uint64_t first = charged(first_in_assembly);
      EXPECT_EQ(charged(true), first);
      EXPECT_EQ(charged(false), first);
      const double part = static_cast<double>(now) / static_cast<double>(full);
      EXPECT_NEAR(static_cast<double>(first), part * static_cast<double>(charge), 1 << 25);
    }
  }
  t.gate->RemoveStream(*added);
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  Rest();
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

// A default stream and one of the program's have their first place in common: each is found where it is.
TEST_F(LaunchKernelTest, StreamsThatShareAPlaceAreToldApart) {
  driver::CurrentContext::Begin();
  const Tenant& t = Weighing(1);
  ns_ = 1'000;
  struct Place {
    CUstream handle;
    uint64_t epoch;
  };
  // For each default stream, one stream of the program whose first place is the same.
  std::vector<CUstream> streams = {nullptr, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
  std::array<bool, 3> has{};
  for (int i = 0; i < 400 && !(has[0] && has[1] && has[2]); ++i) {
    const CUstream stream = NewStream(t);
    for (uintptr_t special = 0; special < 3; ++special) {
      const auto first = [](uintptr_t handle) { return Recent<Place>::FirstPlaceOf(handle); };
      if (!has[special] && first(reinterpret_cast<uintptr_t>(stream)) == first(special)) {
        has[special] = true;
        streams.push_back(stream);
      }
    }
  }
  ASSERT_TRUE(has[0] && has[1] && has[2]);
  // In both orders: the stream that came second has its second place.
  for (const bool backwards : {false, true}) {
    if (backwards) {
      std::reverse(streams.begin(), streams.end());
      const CUstream gone = NewStream(t);
      ASSERT_CU(Spin(t, Micros(1), gone));
      ASSERT_CU(calls_->StreamDestroy(gone));  // from here on the thread knows no stream
    }
    for (CUstream stream : streams) {
      const Parameters all = On(stream);
      ASSERT_NO_FATAL_FAILURE(Prepare(t, all));
    }
    const uint64_t launches = t.gate->stats().launches;
    CUcontext current = nullptr;  // is not asked for if the last stream is not a default one
    ASSERT_CU(driver::CurrentContext::Get(*cu_, &current));
    for (CUstream stream : streams) {
      const Parameters all = On(stream);
      got = {};
      shim::LaunchKernelFunction* const hook = shim::LaunchKernelHook(/*per_thread=*/false);
      EXPECT_CU(By(hook, all));
      EXPECT_EQ(got, all);
      EXPECT_TRUE(WasInAssembly(hook)) << "stream " << stream << (backwards ? ", backwards" : "");
    }
    ASSERT_CU(calls_->CtxSynchronize(t.payer()));
    Rest();
    EXPECT_EQ(t.gate->stats().launches - launches, streams.size());
    EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
  }
}

// The credit limit changes between the two looks at it: the charge just made is kept, and the arguments are
// unchanged.
TEST_F(LaunchKernelTest, WhatIsClaimedUnderTheLockIsLaunchedAsItWas) {
  const Tenant& t = Weighing(1);
  const Parameters all = On(t.stream);
  shim::LaunchKernelFunction* const hook = shim::LaunchKernelHook(/*per_thread=*/false);
  ASSERT_NO_FATAL_FAILURE(Prepare(t, all));
  gate::Pocket* const pocket = t.gate->PocketHere();
  const uint64_t launches = t.gate->stats().launches;
  const uint64_t before = pocket->spent.load();
  ASSERT_CU(By(hook, all));
  const uint64_t after = pocket->spent.load(), charge = after - before - 1;
  // Leaves exactly enough credit. The assembly is not sure in this case and asks.
  const uint64_t limit = pocket->limit.exchange(after + charge);
  got = {};
  EXPECT_CU(By(hook, all));
  EXPECT_EQ(got, all);
  EXPECT_EQ(pocket->spent.load(), after + charge + 1);
  pocket->limit.store(limit);
  EXPECT_CU(By(hook, all));
  ASSERT_CU(calls_->CtxSynchronize(t.payer()));
  Rest();
  EXPECT_EQ(t.gate->stats().launches - launches, 3u);
  EXPECT_EQ(t.gate->view().outstanding, Nanos(0));
}

}  // namespace
}  // namespace gpushare::work
