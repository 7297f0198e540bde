// SPDX-License-Identifier: Apache-2.0
// What the gate adds to a launch. Every row has its twin without the gate in the same run:
//
//   BM_Launch/gate:0          the simulated driver's launch call alone
//   BM_Launch/gate:1          the same behind the gate: idle tenant alone, not throttled, warm
//   BM_AdmitOnly/...          the gate's own instructions: Admit + Complete with credit in hand
//
// The launches go to a simulated device that takes no time, on the wall clock, so that nothing waits.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "driver/driver.h"
#include "gate/engine.h"

namespace gpushare {
namespace {

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=1ns blocks_per_sm=16
.visible .entry nothing()
{
  ret;
}
)";

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}
void Must(driver::Result result) {
  if (result != driver::Result::kSuccess) {
    std::fprintf(stderr, "driver error %d\n", static_cast<int>(result));
    std::exit(1);
  }
}

struct Bed {
  std::unique_ptr<driver::Driver> driver = Must(driver::Driver::Open(
      {.path = "sim",
       .simulation = "clock=wall,launch_host=0ns,launch_latency=0ns,call_host=0ns"}));
  driver::Context context = nullptr;
  driver::Function function = nullptr;
  std::unique_ptr<gate::Engine> engine, generous;

  Bed() {
    context = Must(driver->RetainPrimaryContext(0));
    Must(driver->PushContext(context));
    driver::Module module = nullptr;
    Must(driver->LoadModule(&module, kPtx));
    Must(driver->GetFunction(&function, module, "nothing"));
    engine = Must(gate::Engine::Create(*driver, context, {}));
    // Grants so large that a run never leaves the fast path.
    gate::EngineOptions options;
    options.arbiter.lone_grant = Seconds(600);
    options.arbiter.window = Seconds(600);
    options.arbiter.active_grace = Seconds(600);
    generous = Must(gate::Engine::Create(*driver, context, options));
  }
};
Bed& TheBed() {
  static Bed* const bed = new Bed;
  return *bed;
}

const driver::LaunchShape kShape{{1, 1, 1}, {32, 1, 1}, 0};

struct OneTenant {
  gate::Gate* gate;
  gate::StreamGate* stream;
  driver::Stream handle = nullptr;

  OneTenant(gate::Engine& engine, double cap) {
    gate::TenantOptions options;
    options.limits.cap = cap;
    gate = Must(engine.AddTenant("bench", options));
    Must(TheBed().driver->CreateStream(&handle, 0));
    stream = Must(gate->AddStream(handle));
  }
};

void BM_Launch(benchmark::State& state) {
  Bed& bed = TheBed();
  bed.driver->PushContext(bed.context);
  OneTenant tenant(*bed.engine, 1);
  const bool gated = state.range(0) != 0;
  int n = 0;
  for (auto _ : state) {
    if (gated) {
      const gate::Admission admission =
          tenant.gate->Admit(*tenant.stream, {gate::KernelKey(bed.function, kShape)});
      const driver::Result r = bed.driver->Launch(bed.function, kShape, tenant.handle, nullptr);
      tenant.gate->Complete(admission, r == driver::Result::kSuccess);
    } else {
      bed.driver->Launch(bed.function, kShape, tenant.handle, nullptr);
    }
    if (++n % 512 == 0) {
      state.PauseTiming();
      bed.driver->SynchronizeStream(tenant.handle);
      state.ResumeTiming();
    }
  }
  bed.driver->SynchronizeStream(tenant.handle);
  tenant.gate->RemoveStream(tenant.stream);
  bed.engine->RemoveTenant(tenant.gate);
}
BENCHMARK(BM_Launch)->ArgName("gate")->Arg(0)->Arg(1);

// range(0): cap in percent (100: none). One tenant per run, shared by all threads, a stream each.
void BM_AdmitOnly(benchmark::State& state) {
  Bed& bed = TheBed();
  static gate::Gate* gate;
  if (state.thread_index() == 0) {
    gate::TenantOptions options;
    options.limits.cap = static_cast<double>(state.range(0)) / 100;
    options.limits.cap_depth = Seconds(600);
    gate = Must(bed.generous->AddTenant("bench", options));
  }
  bed.driver->PushContext(bed.context);
  gate::StreamGate* stream = nullptr;
  driver::Stream handle = nullptr;
  bool ready = false;
  for (auto _ : state) {
    if (!ready) {
      Must(bed.driver->CreateStream(&handle, 0));
      stream = Must(gate->AddStream(handle));
      // Known cost: two launches that are measured.
      for (int i = 0; i < 3; ++i) {
        const gate::Admission a = gate->Admit(*stream, {gate::KernelKey(bed.function, kShape)});
        bed.driver->Launch(bed.function, kShape, handle, nullptr);
        gate->Complete(a, true);
        gate->Synchronizing(stream);
        bed.driver->SynchronizeStream(handle);
      }
      ready = true;
    }
    const gate::Admission admission = gate->Admit(*stream, {gate::KernelKey(bed.function, kShape)});
    gate->Complete(admission, true);
    benchmark::DoNotOptimize(admission.launch);
  }
  bed.driver->SynchronizeStream(handle);
  gate->RemoveStream(stream);
  if (state.thread_index() == 0) bed.generous->RemoveTenant(gate);
}
BENCHMARK(BM_AdmitOnly)->ArgName("cap")->Arg(100)->Arg(50);
BENCHMARK(BM_AdmitOnly)->ArgName("cap")->Arg(100)->ThreadRange(2, 8);

}  // namespace
}  // namespace gpushare

BENCHMARK_MAIN();
