// SPDX-License-Identifier: Apache-2.0
// How long the memory of a killed process stays allocated.
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "harness/stage/calibrate/parts.h"

namespace gpushare::harness {
namespace {

constexpr size_t kMib = size_t{1} << 20;
constexpr Nanos kLook = Micros(50);

enum Stage : uint32_t {
  kBefore = 1,   // seat 0 has read the free memory
  kContext = 2,  // seat 1 has a context
  kSeen = 3,     // seat 0 has read what the context takes
  kHeld = 4,     // seat 1 holds memory
  kDie = 5,      // seat 0 has seen that; seat 1 dies
};

size_t BytesOf(size_t total) { return std::min(total / 4, 16'384 * kMib); }

void Hold(Gpu& gpu, Meeting& meeting) {
  base::Clock& clock = gpu.clock();
  meeting.Await(clock, kBefore, kLook);
  gpu.MakeContext();
  meeting.Say(kContext);
  meeting.Await(clock, kSeen, kLook);
  size_t free = 0, total = 0;
  GPUSHARE_MUST(gpu, cuMemGetInfo, &free, &total);
  CUdeviceptr held = 0;
  GPUSHARE_MUST(gpu, cuMemAlloc, &held, BytesOf(total));
  meeting.Say(kHeld);
  meeting.Await(clock, kDie, kLook);
  meeting.Tell(clock.Now());
  kill(getpid(), SIGKILL);
}

void Look(Gpu& gpu, Meeting& meeting) {
  constexpr Nanos kPatience = Seconds(20);
  base::Clock& clock = gpu.clock();
  gpu.MakeContext();
  size_t before = 0, total = 0;
  GPUSHARE_MUST(gpu, cuMemGetInfo, &before, &total);
  const size_t bytes = BytesOf(total);
  meeting.Say(kBefore);
  meeting.Await(clock, kContext, kLook);
  const size_t beside_context = gpu.FreeMemory();
  meeting.Say(kSeen);
  meeting.Await(clock, kHeld, kLook);
  const bool shows = gpu.FreeMemory() + bytes / 2 < beside_context;
  meeting.Say(kDie);
  if (!shows) {
    const char* const why = "what another process holds does not show in what this one sees free";
    gpu.ReportWhyNot("teardown", why);
    return gpu.ReportWhyNot("context_memory", why);
  }
  gpu.Report("context_memory", {static_cast<double>(before - std::min(before, beside_context))});
  const size_t near = std::min(32 * kMib, bytes / 2);
  const Time patience = clock.Now() + kPatience;
  while (gpu.FreeMemory() + near < before) {
    if (clock.Now() > patience) {
      return gpu.ReportWhyNot("teardown", "the memory of a killed process was not free after 20 s");
    }
    clock.SleepUntil(clock.Now() + kLook);
  }
  gpu.Report("teardown", {std::max(InNs(clock.Now() - meeting.told()), 0.0)});
}

}  // namespace

void MeasureTeardown(Gpu& gpu, Meeting& meeting, int seat) {
  if (seat == 0) {
    Look(gpu, meeting);
  } else {
    Hold(gpu, meeting);
  }
}

}  // namespace gpushare::harness
