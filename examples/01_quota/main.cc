// SPDX-License-Identifier: Apache-2.0
// A memory quota that holds to the byte: allocations within it succeed, others fail with the reason, and the quota can be
// raised while the program runs.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "gpushare/allocator.h"
#include "gpushare/gpu.h"
#include "gpushare/runtime.h"
#include "gpushare/tenant.h"
#include "gpushare/virtual_device.h"

namespace {

using namespace gpushare::literals;

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::exit(1);
  }
  return *std::move(value);
}

}  // namespace

int main() {
  // Uses the machine's own driver unless GPUSHARE_DRIVER is set; "sim" is the simulated GPU.
  const gpushare::Runtime runtime = OrDie(gpushare::Runtime::Create());
  const gpushare::Gpu gpu = OrDie(gpushare::Gpu::Open(runtime, "0"));
  const gpushare::Tenant tenant = OrDie(gpushare::Tenant::Create(runtime, {.name = "trainer"}));
  const gpushare::VirtualDevice device =
      OrDie(gpushare::VirtualDevice::Create(gpu, tenant, "memory=1GiB"));
  const gpushare::Allocator allocator = OrDie(gpushare::Allocator::Create(device));

  const gpushare::Allocation weights = OrDie(allocator.Allocate(768_MiB));
  std::printf("768 MiB: allocated\n");

  const absl::StatusOr<gpushare::Allocation> batch = allocator.Allocate(512_MiB);
  std::printf("512 MiB: %s\n",
              batch.status().ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  if (const auto detail = gpushare::ErrorDetail::Of(batch.status())) {
    std::printf("  short by %llu MiB\n",
                static_cast<unsigned long long>((detail->asked - detail->left) >> 20));
  }

  if (const absl::Status resized = device.Resize("memory=2GiB"); !resized.ok()) {
    std::cerr << resized << "\n";
    return 1;
  }
  const gpushare::Allocation bigger = OrDie(allocator.Allocate(512_MiB));
  std::printf("512 MiB after Resize(\"memory=2GiB\"): allocated\n");

  const gpushare::VirtualDeviceStats stats = OrDie(device.stats());
  std::printf("%s: %llu MiB of %llu MiB in use, %llu refused\n", stats.tenant.c_str(),
              static_cast<unsigned long long>(stats.memory.used.count() >> 20),
              static_cast<unsigned long long>(stats.memory.limit.count() >> 20),
              static_cast<unsigned long long>(stats.memory.denied));
  return 0;
}
