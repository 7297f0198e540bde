// SPDX-License-Identifier: Apache-2.0
// Events and graphs: owned handles of the driver.
#include <cmath>
#include <new>
#include <utility>

#include "base/status_macros.h"
#include "device/process/runtime.h"
#include "device/stream/stream.h"
#include "gate/graphs.h"

namespace gpushare::device {
namespace {

// The driver takes memory for graphs in units of this size.
constexpr uint64_t kGraphUnit = uint64_t{32} << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<Event>> Event::Create(std::shared_ptr<VirtualDevice> device,
                                                     bool timing) {
  const std::shared_ptr<Event> event(new Event(std::move(device)));
  const Gpu& gpu = event->device_->gpu();
  const ContextScope current(event->device_->site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  GPUSHARE_RETURN_IF_ERROR(
      driver::ToStatus(gpu.driver().CreateEvent(&event->native_, timing), "cuEventCreate"));
  return event;
}

Event::~Event() {
  if (native_ == nullptr) return;
  const ContextScope current(device_->site());
  static_cast<void>(device_->gpu().driver().DestroyEvent(native_));
}

absl::StatusOr<bool> Event::Done() const {
  const ContextScope current(device_->site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const driver::Result result = device_->gpu().driver().QueryEvent(native_);
  if (result == driver::Result::kNotReady) return false;
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(result, "cuEventQuery"));
  return true;
}

absl::Status Event::Synchronize() const {
  const ContextScope current(device_->site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  device_->gate().Synchronizing(nullptr);
  const driver::Result result = device_->gpu().driver().SynchronizeEvent(native_);
  device_->gate().Synchronized();
  return driver::ToStatus(result, "cuEventSynchronize");
}

absl::StatusOr<Nanos> Event::Since(const Event& start) const {
  const ContextScope current(device_->site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  float ms = 0;
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(
      device_->gpu().driver().ElapsedMs(&ms, start.native_, native_), "cuEventElapsedTime"));
  return Nanos(std::llround(static_cast<double>(ms) * 1e6));
}

absl::StatusOr<std::shared_ptr<Graph>> Graph::Instantiate(std::shared_ptr<VirtualDevice> device,
                                                          driver::Graph graph) {
  Gpu& gpu = device->gpu();
  const driver::Driver& driver = gpu.driver();
  // Whatever throws below: the captured graph is the driver's, and nobody else has it.
  struct Captured {
    const driver::Driver& driver;
    driver::Graph graph;
    ~Captured() { static_cast<void>(driver.DestroyGraph(graph)); }
  };
  const Captured captured{driver, graph};
  const std::shared_ptr<Graph> made(new Graph(std::move(device)));
  const driver::GraphContents contents = driver.ContentsOf(graph);
  // It is there from the first launch until the graph ends. The driver takes it in units.
  const uint64_t memory = (contents.memory + kGraphUnit - 1) / kGraphUnit * kGraphUnit;
  if (memory > 0) {
    GPUSHARE_RETURN_IF_ERROR(made->device_->Charge({.bytes = memory}));
    made->device_->account().Commit(memory);
    made->memory_ = memory;
  }
  const driver::Result result = driver.Instantiate(&made->native_, graph);
  if (result == driver::Result::kSuccess) {
    const auto footprint = [&gpu](const driver::GraphKernel& kernel) {
      float known = 1;  // where the driver does not say
      static_cast<void>(gpu.FindFootprint(kernel.function, kernel.shape,
                                          gate::KernelKey(kernel.function, kernel.shape), &known));
      return known;
    };
    gpu.runtime()->graphs().Instantiated(made->native_, contents, footprint);
  }
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(result, "cuGraphInstantiate"));
  return made;
}

Graph::~Graph() {
  const ContextScope current(device_->site());
  const driver::Driver& driver = device_->gpu().driver();
  if (native_ != nullptr) {
    device_->gpu().runtime()->graphs().Ended(native_);
    static_cast<void>(driver.DestroyGraphExec(native_));
  }
  if (memory_ == 0) return;
  static_cast<void>(driver.TrimGraphMemory(device_->gpu().ordinal()));
  device_->account().Release(memory_);
}

}  // namespace gpushare::device
