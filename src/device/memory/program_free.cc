// SPDX-License-Identifier: Apache-2.0
#include "device/memory/program_free.h"

#include <memory>

#include "base/status_macros.h"
#include "device/gpu/gpu.h"
#include "device/memory/memory_order.h"
#include "device/memory/memory_pool.h"
#include "device/process/runtimes.h"
#include "device/share/virtual_device.h"
#include "device/stream/stream.h"
#include "driver/errors.h"
#include "driver/relaxed_capture.h"

namespace gpushare::device {
namespace {

absl::Status AwaitContext(const Gpu& gpu, const Site& site) {
  const ContextScope current(site);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const driver::RelaxedCapture relaxed(site.driver);
  return gpu.AwaitWorkOrSay();
}

// A pool has its allocations again at once, whoever uses them still.
absl::Status AwaitUse(Gpu& gpu, MemoryPool* pool, driver::DevicePtr pointer) {
  if (pool == nullptr) return AwaitContext(gpu, gpu.site());
  if (!pool->HoldFor(pointer)) return absl::OkStatus();  // what the free says
  const HeldDevice held(pool->device());
  ContextDoor* const door = pool->device().door();
  if (door == nullptr) return AwaitContext(gpu, gpu.site());
  const ContextDoor::Visit visit(*door);
  return visit.inside() ? AwaitContext(gpu, pool->device().site()) : absl::OkStatus();
}

absl::Status FreeOn(Gpu& gpu, MemoryPool* pool, driver::DevicePtr pointer,
                    const driver::Stream* stream) {
  if (stream == nullptr) {
    const absl::Status used = AwaitUse(gpu, pool, pointer);
    if (!used.ok() && !absl::IsAborted(used)) return used;  // in a lost context nothing runs
    return FreePointer(gpu, nullptr, pointer);
  }
  if (const std::shared_ptr<Stream> bound = gpu.BoundStream(*stream)) {
    return FreePointer(gpu, nullptr, pointer, {.stream = bound.get()});
  }
  GPUSHARE_ASSIGN_OR_RETURN(const MemoryOrder order, ForeignOrder(gpu.driver(), *stream));
  return FreePointer(gpu, nullptr, pointer, order);
}

}  // namespace

std::optional<driver::Result> FreeForProgram(const driver::Driver& driver,
                                             driver::DevicePtr pointer,
                                             const driver::Stream* stream) {
  for (const std::shared_ptr<Gpu>& gpu : OpenGpusOver(driver)) {
    const std::shared_ptr<MemoryPool> pool = gpu->PoolAt(pointer);
    quota::Allocation allocation;
    if (pool == nullptr && !gpu->unbooked().Find(pointer, &allocation)) continue;
    const ContextScope::Restores restores(driver);
    return driver::FromStatus(FreeOn(*gpu, pool.get(), pointer, stream));
  }
  return std::nullopt;
}

}  // namespace gpushare::device
