// SPDX-License-Identifier: Apache-2.0
// Two models take turns in memory that does not hold both: the one that is suspended leaves the device, keeps its addresses,
// and finds its weights there when it is resumed.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/placement.h"
#include "gpushare/runtime.h"
#include "gpushare/snapshot.h"
#include "gpushare/stream.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"

namespace {

using namespace gpushare::literals;

void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::exit(1);
}
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  OrDie(value.status());
  return *std::move(value);
}

void Print(const char* when, const gpushare::VirtualDevice& device) {
  const gpushare::VirtualDeviceStats stats = OrDie(device.stats());
  std::printf("%-24s %s: %3llu MiB on the device, %3llu MiB in the host's memory\n", when,
              stats.tenant.c_str(),
              static_cast<unsigned long long>(stats.memory.used.count() >> 20),
              static_cast<unsigned long long>(stats.memory.swapped.count() >> 20));
}

}  // namespace

int main() {
  const gpushare::Runtime runtime = OrDie(gpushare::Runtime::Create());
  const gpushare::Gpu gpu = OrDie(gpushare::Gpu::Open(runtime, "0"));
  const auto make = [&](const char* name, const std::string& spec) {
    const gpushare::Tenant tenant = OrDie(gpushare::Tenant::Create(runtime, {.name = name}));
    return OrDie(gpushare::VirtualDevice::Create(gpu, tenant, spec));
  };
  // All that the GPU has but for 512 MiB is promised to somebody else. The two models have these in common.
  const uint64_t left = OrDie(gpushare::RoomOf(gpu)).memory_left.count();
  const gpushare::VirtualDevice others =
      make("others", "memory=" + std::to_string(left - (512_MiB).count()));
  const gpushare::VirtualDevice chat = make("chat", "weight=1");
  const gpushare::VirtualDevice code = make("code", "weight=1");

  const gpushare::Allocator swappable = OrDie(
      gpushare::Allocator::Create(chat, {.strategy = gpushare::AllocationStrategy::kSwappable}));
  const gpushare::Allocation weights = OrDie(swappable.Allocate(256_MiB));
  const gpushare::Stream stream = OrDie(gpushare::Stream::Create(chat));
  OrDie(stream.SetAsync(weights.pointer(), 42, weights.size()));
  Print("weights loaded", chat);

  const gpushare::Allocator memory = OrDie(gpushare::Allocator::Create(code));
  const auto refused = memory.Allocate(448_MiB);
  std::printf("448 MiB for code:        %s\n", refused.ok() ? "allocated" : "refused");

  OrDie(chat.Suspend());
  Print("chat suspended", chat);
  gpushare::Allocation batch = OrDie(memory.Allocate(448_MiB));
  std::printf("448 MiB for code:        allocated\n");

  const absl::Status early = chat.Resume();
  std::printf("chat resumed too early:  %s\n", absl::IsResourceExhausted(early) ? "refused" : "?");
  OrDie(batch.Free());
  OrDie(chat.Resume());
  Print("chat resumed", chat);

  std::vector<uint8_t> bytes(weights.size().count());
  OrDie(stream.CopyToHost(bytes.data(), weights.pointer(), weights.size()));
  const bool intact = std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 42; });
  std::printf("its weights:             %s\n", intact ? "intact" : "lost");
  return intact ? 0 : 1;
}
