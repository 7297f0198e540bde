// SPDX-License-Identifier: Apache-2.0
// Two tenants in one process share a GPU 3:1 by weight, although one launches short kernels and the other long ones. Each has a
// thread and a stream, like two models in a server.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "gpushare/gpu.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/snapshot.h"
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
  const gpushare::Runtime runtime = OrDie(gpushare::Runtime::Create());
  const gpushare::Gpu gpu = OrDie(gpushare::Gpu::Open(runtime, "0"));
  const gpushare::Module module = OrDie(gpushare::Module::Load(gpu, kSpin));
  const gpushare::Function spin = OrDie(module.GetFunction("spin"));
  const uint32_t sms = static_cast<uint32_t>(OrDie(gpu.Probe()).sm_count);

  struct Job {
    const char* name;
    const char* spec;
    absl::Duration kernel;
  };
  const Job jobs[] = {{"three", "weight=3", absl::Microseconds(20)},
                      {"one", "weight=1", absl::Microseconds(500)}};

  const absl::Duration end = runtime.Now() + absl::Seconds(1);
  const auto work = [&](const Job& job) {
    const gpushare::Tenant tenant = OrDie(gpushare::Tenant::Create(runtime, {.name = job.name}));
    const gpushare::VirtualDevice device =
        OrDie(gpushare::VirtualDevice::Create(gpu, tenant, job.spec));
    const gpushare::Stream stream = OrDie(gpushare::Stream::Create(device));
    const uint64_t ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(job.kernel));
    while (runtime.Now() < end) {
      OrDie(stream.Launch(spin, {.grid = {sms}, .block = {1024}}, ns));
    }
    OrDie(stream.Synchronize());
    runtime.SleepFor(absl::Milliseconds(20));  // lets the last measurements arrive
    const gpushare::VirtualDeviceStats stats = OrDie(device.stats());
    std::printf("%-6s %-9s %7.1f ms of device time, %6llu launches, held %5.1f ms\n", job.name,
                job.spec, absl::ToDoubleMilliseconds(stats.compute.measured),
                static_cast<unsigned long long>(stats.compute.launches),
                absl::ToDoubleMilliseconds(stats.throttled));
  };
  {
    // Threads of the runtime's clock, so that the simulated GPU's virtual time is the same in every run. With a real GPU any
    // threads will do.
    gpushare::Thread first = OrDie(runtime.StartThread("three", [&] { work(jobs[0]); }));
    gpushare::Thread second = OrDie(runtime.StartThread("one", [&] { work(jobs[1]); }));
  }
  return 0;
}
