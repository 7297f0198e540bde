// SPDX-License-Identifier: Apache-2.0
// Measures the cost of many virtual devices on one GPU.
//
//   build/dev/bench/scale/scale [--devices 10000] [--slack 1]
//
// Prints how long it takes to create and to destroy the devices, how much host memory each takes, and what a launch costs while
// they exist: idle ones that never launched, and ones that launched once. Fails beyond these bars: a second for creating
// 10,000, a second for destroying them, and for a launch 1.2 times the cost with two devices. All times are processor time of
// the whole process, including its reconciler, on the virtual clock, so that every run does the same work. Other load on the
// machine still shows through the caches, so the tests run this with --slack 8, which multiplies the bars: a cost that grows
// with the number of tenants exceeds even those by far, and nothing else does.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "gpushare/gpu.h"
#include "gpushare/module.h"
#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"

namespace {

using namespace gpushare;

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=1us blocks_per_sm=16
.visible .entry nothing()
{
  ret;
}
)";
constexpr double kCreateBar = 1, kDestroyBar = 1, kLaunchBar = 1.2;

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::exit(1);
}
template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

// Processor time of this process, in seconds.
double Now() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Resident memory of this process, in bytes.
double ResidentMemory() {
  std::ifstream statm("/proc/self/statm");
  double size = 0, resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

struct Client {
  Tenant tenant;
  VirtualDevice device;
};
Client Connect(const Runtime& runtime, const Gpu& gpu, const std::string& name,
               const std::string& spec) {
  Tenant tenant = Must(Tenant::Create(runtime, {.name = name}));
  VirtualDevice device = Must(VirtualDevice::Create(gpu, tenant, spec));
  return {std::move(tenant), std::move(device)};
}

struct Launcher {
  Client client;
  Stream stream;
  Function function;

  void Burst(int launches) const {
    for (int i = 0; i < launches; ++i) Must(stream.Launch(function, {{1, 1, 1}, {32, 1, 1}}));
    Must(stream.Synchronize());
  }
};
Launcher MakeLauncher(const Runtime& runtime, const Gpu& gpu, const Function& function,
                      const std::string& name) {
  Client client = Connect(runtime, gpu, name, "memory=1MiB");
  Stream stream = Must(Stream::Create(client.device));
  return {std::move(client), std::move(stream), function};
}

// Microseconds per launch, with two tenants launching in turn: the best of several rounds, since disturbances only make a round
// longer.
double LaunchCost(const Launcher& a, const Launcher& b) {
  constexpr int kRounds = 200, kTurns = 20, kBurst = 64;
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double began = Now();
    for (int turn = 0; turn < kTurns; ++turn) {
      a.Burst(kBurst);
      b.Burst(kBurst);
    }
    best = std::min(best, (Now() - began) / (2 * kTurns * kBurst) * 1e6);
  }
  return best;
}

int Run(const Runtime& runtime, int devices, double slack) {
  const Gpu gpu = Must(Gpu::Open(runtime, "0"));
  const Module module = Must(Module::Load(gpu, kPtx));
  const Function function = Must(module.GetFunction("nothing"));
  const Launcher a = MakeLauncher(runtime, gpu, function, "a");
  const Launcher b = MakeLauncher(runtime, gpu, function, "b");
  LaunchCost(a, b);  // lets the meter learn the costs
  double with_two = LaunchCost(a, b);

  std::vector<Client> clients;
  clients.reserve(static_cast<size_t>(devices));
  const double memory = ResidentMemory();
  double began = Now();
  for (int i = 0; i < devices; ++i) {
    clients.push_back(Connect(runtime, gpu, "tenant-" + std::to_string(i), "memory=1MiB"));
  }
  const double create = Now() - began;
  const double each = (ResidentMemory() - memory) / devices;
  const double with_many = LaunchCost(a, b);

  // A tenth of the tenants launch once and keep their streams.
  std::vector<Stream> streams;
  for (int i = 0; i < devices; i += 10) {
    streams.push_back(Must(Stream::Create(clients[static_cast<size_t>(i)].device)));
    Must(streams.back().Launch(function, {{1, 1, 1}, {32, 1, 1}}));
    Must(streams.back().Synchronize());
  }
  const double with_used = LaunchCost(a, b);
  streams.clear();

  began = Now();
  clients.clear();
  const double destroy = Now() - began;
  with_two = std::min(with_two, LaunchCost(a, b));

  std::printf("%d virtual devices\n", devices);
  std::printf("create   %8.3f s   %6.2f us each   (bar %.1f s for 10,000)\n", create,
              create / devices * 1e6, kCreateBar);
  std::printf("destroy  %8.3f s   %6.2f us each   (bar %.1f s for 10,000)\n", destroy,
              destroy / devices * 1e6, kDestroyBar);
  std::printf("memory   %8.1f KiB each\n", each / 1024);
  std::printf("launch   %8.3f us with 2 devices\n", with_two);
  std::printf("         %8.3f us with these idle beside them: %.2f times (bar %.1f)\n", with_many,
              with_many / with_two, kLaunchBar);
  std::printf("         %8.3f us after a tenth of them launched once: %.2f times (bar %.1f)\n",
              with_used, with_used / with_two, kLaunchBar);
  const double scale = slack * devices / 10'000.0;
  const double launch_bar = slack * kLaunchBar * with_two;
  return create > kCreateBar * scale || destroy > kDestroyBar * scale || with_many > launch_bar ||
                 with_used > launch_bar
             ? 1
             : 0;
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 10'000;
  double slack = 1;
  bool known = argc % 2 == 1;
  for (int i = 1; known && i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--devices") == 0) {
      devices = std::atoi(argv[i + 1]);
    } else if (std::strcmp(argv[i], "--slack") == 0) {
      slack = std::atof(argv[i + 1]);
    } else {
      known = false;
    }
  }
  if (!known || devices < 10 || devices > 1'000'000 || !(slack >= 1)) {
    std::fprintf(stderr, "usage: scale [--devices 10..1000000] [--slack 1..]\n");
    return 2;
  }
  const Runtime runtime = Must(Runtime::Create({.driver = "sim", .simulation = "memory=64GiB"}));
  int code = 1;
  Must(runtime.StartThread("scale", [&] { code = Run(runtime, devices, slack); })).Join();
  return code;
}
