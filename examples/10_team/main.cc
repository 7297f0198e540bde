// SPDX-License-Identifier: Apache-2.0
// A team has half of a GPU and 8 GiB of its memory. Its two users divide that 2:1, while a job outside the team uses the GPU too.
// When one user stops, its part goes to the other user and not to the job. The users' allocations are counted together.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"

namespace {

// A kernel that takes `ns` nanoseconds: a real GPU spins, and the simulated one reads the cost from the comment.
constexpr char kSpin[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns)
{
  .reg .u64 %begin, %now, %want;
  .reg .pred %more;
  ld.param.u64 %want, [ns];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %more, %now, %want;
  @%more bra again;
  ret;
}
)";

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::exit(1);
  }
  return *std::move(value);
}

void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::exit(1);
}

}  // namespace

int main() {
  using gpushare::GiB;
  const gpushare::Runtime runtime = OrDie(gpushare::Runtime::Create());
  const gpushare::Gpu gpu = OrDie(gpushare::Gpu::Open(runtime, "0"));
  const gpushare::Module module = OrDie(gpushare::Module::Load(gpu, kSpin));
  const gpushare::Function spin = OrDie(module.GetFunction("spin"));
  const uint32_t sms = static_cast<uint32_t>(OrDie(gpu.Probe()).sm_count);

  // The team comes first: its users' limits lie within its own.
  const gpushare::Tenant team = OrDie(gpushare::Tenant::Create(runtime, {.name = "team"}));
  const gpushare::VirtualDevice whole =
      OrDie(gpushare::VirtualDevice::Create(gpu, team, "memory=8GiB"));
  const auto make = [&](const char* name, const gpushare::Tenant* parent, const char* spec) {
    const gpushare::Tenant tenant =
        OrDie(gpushare::Tenant::Create(runtime, {.name = name, .parent = parent}));
    return OrDie(gpushare::VirtualDevice::Create(gpu, tenant, spec));
  };
  const std::array<gpushare::VirtualDevice, 3> devices = {
      make("ann", &team, "memory=6GiB,weight=2"), make("ben", &team, "memory=6GiB,weight=1"),
      make("job", nullptr, "weight=1")};

  // Memory: each user may have 6 GiB, and both together 8.
  const gpushare::Allocator of_ann = OrDie(gpushare::Allocator::Create(devices[0]));
  const gpushare::Allocator of_ben = OrDie(gpushare::Allocator::Create(devices[1]));
  const gpushare::Allocation held = OrDie(of_ann.Allocate(GiB(5)));
  std::cout << of_ben.Allocate(GiB(4)).status().message() << "\n";

  // Time: ann gets 2/6, ben 1/6, the job 3/6. After a second ben stops.
  const absl::Duration begin = runtime.Now();
  const auto work = [&](const gpushare::VirtualDevice& device, absl::Duration until) {
    const gpushare::Stream stream = OrDie(gpushare::Stream::Create(device));
    while (runtime.Now() < begin + until) {
      OrDie(stream.Launch(spin, {.grid = {sms}, .block = {1024}}, uint64_t{100'000}));
    }
    OrDie(stream.Synchronize());
  };
  std::array<absl::Duration, 3> before{};
  const auto print = [&](const char* when) {
    std::printf("%-12s", when);
    for (size_t i = 0; i < devices.size(); ++i) {
      const gpushare::VirtualDeviceStats stats = OrDie(devices[i].stats());
      const absl::Duration used = stats.compute.measured - before[i];
      before[i] = stats.compute.measured;
      std::printf("  %s %4.1f %%", stats.tenant.c_str(), 100 * absl::ToDoubleSeconds(used));
    }
    std::printf("\n");
  };
  {
    std::array<std::optional<gpushare::Thread>, 3> threads;
    for (size_t i = 0; i < threads.size(); ++i) {
      const absl::Duration until = absl::Seconds(i == 1 ? 1 : 2);
      threads[i] = OrDie(runtime.StartThread("worker", [&, i, until] { work(devices[i], until); }));
    }
    runtime.SleepFor(begin + absl::Seconds(1) - runtime.Now());
    print("all three");
    runtime.SleepFor(begin + absl::Seconds(2) - runtime.Now());
    print("without ben");
  }
  return 0;
}
