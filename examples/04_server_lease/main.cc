// SPDX-License-Identifier: Apache-2.0
// An inference server with an engine that launches on its own (here: straight through the driver). The server acquires a lease
// before each request and releases it afterwards: that is the whole patch, marked with [gpushare] below. There are two models:
// one with high priority, and a batch job.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "gpushare/gpu.h"
#include "gpushare/lease.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/snapshot.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"

namespace {

constexpr char kLayer[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry layer(.param .u64 ns)
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

using LaunchKernel = int(CUfunc_st*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, CUstream_st*, void**, void**);
using SynchronizeStream = int(CUstream_st*);

// An engine that knows nothing of gpushare: it launches ten layers on a stream.
struct Engine {
  LaunchKernel* launch;
  SynchronizeStream* synchronize;
  CUfunc_st* layer;
  unsigned sms;

  bool Run(CUstream_st* stream, absl::Duration layer_time) const {
    uint64_t ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(layer_time));
    void* params[] = {&ns};
    for (int i = 0; i < 10; ++i) {
      if (launch(layer, sms, 1, 1, 1024, 1, 1, 0, stream, params, nullptr) != 0) return false;
    }
    return synchronize(stream) == 0;
  }
};

absl::Duration Quantile(std::vector<absl::Duration> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main() {
  const gpushare::Runtime runtime = OrDie(gpushare::Runtime::Create());
  const gpushare::Gpu gpu = OrDie(gpushare::Gpu::Open(runtime, "0"));
  const gpushare::Module module = OrDie(gpushare::Module::Load(gpu, kLayer));
  const Engine engine = {runtime.Symbol<LaunchKernel>("cuLaunchKernel"),
                         runtime.Symbol<SynchronizeStream>("cuStreamSynchronize"),
                         OrDie(module.GetFunction("layer")).native(),
                         static_cast<unsigned>(OrDie(gpu.Probe()).sm_count)};

  const absl::Duration end = runtime.Now() + absl::Seconds(2);
  const auto serve = [&](const char* name, const char* spec, absl::Duration layer,
                         absl::Duration pause) {
    const gpushare::Tenant tenant =
        OrDie(gpushare::Tenant::Create(runtime, {.name = name}));                   // [gpushare]
    const auto device = OrDie(gpushare::VirtualDevice::Create(gpu, tenant, spec));  // [gpushare]
    const gpushare::Stream stream = OrDie(gpushare::Stream::Create(device));        // [gpushare]
    CUstream_st* const native = OrDie(stream.native());
    std::vector<absl::Duration> latencies;
    while (runtime.Now() < end) {
      const absl::Duration arrived = runtime.Now();
      auto lease = OrDie(gpushare::Lease::Acquire(
          device, {.hint = 10 * layer, .streams = {&stream}}));  // [gpushare]
      if (!engine.Run(native, layer)) std::exit(1);
      OrDie(lease.Release().status());  // [gpushare]
      latencies.push_back(runtime.Now() - arrived);
      if (pause > absl::ZeroDuration()) runtime.SleepFor(pause);
    }
    const gpushare::VirtualDeviceStats stats = OrDie(device.stats());
    std::printf("%-6s %5zu requests of %s: p50 %s, p99 %s; held %s in all\n", name,
                latencies.size(), absl::FormatDuration(10 * layer).c_str(),
                absl::FormatDuration(Quantile(latencies, 0.5)).c_str(),
                absl::FormatDuration(Quantile(latencies, 0.99)).c_str(),
                absl::FormatDuration(stats.throttled).c_str());
  };
  {
    gpushare::Thread online = OrDie(runtime.StartThread("online", [&] {
      serve("online", "priority=high", absl::Microseconds(50), absl::Milliseconds(3));
    }));
    gpushare::Thread batch = OrDie(runtime.StartThread("batch", [&] {
      serve("batch", "priority=low", absl::Microseconds(100), absl::ZeroDuration());
    }));
  }
  return 0;
}
