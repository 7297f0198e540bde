// SPDX-License-Identifier: Apache-2.0
// The hooks of a program that uses the SDK, on the virtual clock, with marks around the pieces to count.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "bench/fast_path/steps_here.h"
#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/testing/sim.h"
#include "gpushare/virtual_device.h"

namespace {

using namespace gpushare;

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=10us blocks_per_sm=1
.visible .entry shortly() { ret; }
)";
constexpr int kWarmUp = 200, kSamples = 5;

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}
void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// After each hook, and not counted, `rest` restores the initial state.
template <typename Hook, typename Rest>
void Measure(const char* name, Hook hook, Rest rest) {
  for (int i = 0; i < kWarmUp; ++i) {
    hook();
    if (i % 8 == 7) rest();
  }
  rest();
  for (int i = 0; i < kSamples; ++i) {
    hook();  // brings its memory and the credit back
    GPUSHARE_STEPS_BEGIN(name);
    hook();
    GPUSHARE_STEPS_END();
    rest();
  }
}

struct Tenants {
  Tenants(const Runtime& runtime, const Gpu& gpu, const char* name, const char* spec)
      : tenant(Must(Tenant::Create(runtime, {.name = name}))),
        device(Must(VirtualDevice::Create(gpu, tenant, spec))),
        stream(Must(Stream::Create(device))) {}
  Tenant tenant;
  VirtualDevice device;
  Stream stream;
};

void Run(const Runtime& runtime) {
  const Gpu gpu = Must(Gpu::Open(runtime, "0"));
  const Module module = Must(Module::Load(gpu, kPtx));
  const Function shortly = Must(module.GetFunction("shortly"));
  const auto nothing = [] {};
  for (int i = 0; i < kSamples; ++i) {
    GPUSHARE_STEPS_BEGIN("nothing");
    GPUSHARE_STEPS_END();
  }
  const auto launches = [&](const char* name, const Tenants& of) {
    Measure(
        name, [&] { Must(of.stream.Launch(shortly, {.grid = {1}, .block = {32}})); },
        [&] { Must(of.stream.Synchronize()); });
  };
  {
    const Tenants alone(runtime, gpu, "alone", "memory=8GiB");
    launches("launch, nobody else", alone);
    Measure(
        "synchronize an idle stream", [&] { Must(alone.stream.Synchronize()); }, nothing);
    const auto pairs = [&](const char* name, AllocationStrategy strategy, Bytes size) {
      const Allocator allocator = Must(Allocator::Create(alone.device, {.strategy = strategy}));
      Measure(
          name,
          [&] {
            gpushare_device_ptr pointer = 0;
            if (gpushare_alloc(allocator.handle(), size.count(), &pointer) != GPUSHARE_OK ||
                gpushare_free(allocator.handle(), pointer) != GPUSHARE_OK) {
              std::exit(1);
            }
          },
          nothing);
    };
    pairs("alloc and free, direct", AllocationStrategy::kDirect, KiB(64));
    pairs("alloc and free, suballocating", AllocationStrategy::kSuballocating, KiB(64));
    const Allocator allocator = Must(Allocator::Create(alone.device));
    const Allocation memory = Must(allocator.Allocate(KiB(64)));
    std::array<char, 4096> host{};
    Measure(
        "copy 4 KiB to the device, not limited",
        [&] { Must(alone.stream.CopyToDeviceAsync(memory.pointer(), host.data(), KiB(4))); },
        [&] { Must(alone.stream.Synchronize()); });
  }
  const Tenants capped(runtime, gpu, "capped", "memory=4GiB,cap=50%");
  launches("launch under a cap", capped);
  const Tenants other(runtime, gpu, "other", "memory=4GiB");
  launches("launch beside an idle tenant", other);
}

}  // namespace

int main() {
  const Runtime runtime = Must(Runtime::Create({.driver = "sim", .simulation = "memory=64GiB"}));
  runtime.Symbol<decltype(gpushare_sim_thread_enter)>("gpushare_sim_thread_enter")("fast_path");
  Run(runtime);
  runtime.Symbol<decltype(gpushare_sim_thread_leave)>("gpushare_sim_thread_leave")();
  return 0;
}
