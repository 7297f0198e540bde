// SPDX-License-Identifier: Apache-2.0
// Uses gpushare from C++: a quota of 1 GiB on a simulated GPU of 8 GiB, exact to the byte.
#include <gpushare/allocator.h>
#include <gpushare/error.h>
#include <gpushare/gpu.h>
#include <gpushare/runtime.h>
#include <gpushare/tenant.h>
#include <gpushare/virtual_device.h>

#include <iostream>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace {

absl::Status Run() {
  gpushare::RuntimeOptions options;
  options.driver = "sim";
  options.simulation = "memory=8GiB";
  absl::StatusOr<gpushare::Runtime> runtime = gpushare::Runtime::Create(options);
  if (!runtime.ok()) return runtime.status();
  // Compiled with -Wextra -Werror: omitted fields must not cause a warning.
  absl::StatusOr<gpushare::Gpu> gpu =
      gpushare::Gpu::Open(*runtime, "0", {.min_commands = 8, .idle_budget = 0});
  if (!gpu.ok()) return gpu.status();
  absl::StatusOr<gpushare::Tenant> tenant =
      gpushare::Tenant::Create(*runtime, {.name = "consumer"});
  if (!tenant.ok()) return tenant.status();
  absl::StatusOr<gpushare::VirtualDevice> device = gpushare::VirtualDevice::Create(
      *gpu, *tenant,
      gpushare::VirtualDeviceSpec{.memory = gpushare::GiB(1), .compute = gpushare::Percent(30)});
  if (!device.ok()) return device.status();
  absl::StatusOr<gpushare::Allocator> allocator = gpushare::Allocator::Create(*device);
  if (!allocator.ok()) return allocator.status();

  absl::StatusOr<gpushare::Allocation> all = allocator->Allocate(gpushare::GiB(1));
  if (!all.ok()) return all.status();
  absl::StatusOr<gpushare::Allocation> more = allocator->Allocate(gpushare::Bytes(1));
  if (!absl::IsResourceExhausted(more.status())) {
    return absl::InternalError("one byte over the quota: " + more.status().ToString());
  }
  std::cout << more.status() << "\n";
  const std::optional<gpushare::ErrorDetail> detail = gpushare::ErrorDetail::Of(more.status());
  if (!detail || detail->limit != "memory" || detail->asked != 1 || detail->left != 0) {
    return absl::InternalError("the refusal has no detail, or a wrong one");
  }
  return all->Free();
}

}  // namespace

int main() {
  const absl::Status status = Run();
  std::cout << "consumer: " << (status.ok() ? "ok" : status.ToString()) << "\n";
  return status.ok() ? 0 : 1;
}
