// SPDX-License-Identifier: Apache-2.0
// A physical GPU, or a MIG instance.
//
//   absl::StatusOr<GpuProbe> probe = Gpu::Probe(*runtime, "GPU-8f1c...");
//   if (probe->state != GpuProbe::State::kHealthy) return Explain(probe->reason);
//   absl::StatusOr<Gpu> gpu = Gpu::Open(*runtime, "0");   // ordinal, UUID or PCI id
//
// All openings of a GPU in a runtime share one engine, so their tenants share the device. Errors:
// NotFound, with a list of the existing GPUs. Threading: thread-safe.
#ifndef GPUSHARE_GPU_H_
#define GPUSHARE_GPU_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/handle.h"
#include "gpushare/internal/text.h"
#include "gpushare/runtime.h"
#include "gpushare/scheduler.h"
#include "gpushare/units.h"

namespace gpushare {

// What is known about a GPU, and the limits that others (MPS, the cgroup) have set on it.
struct GpuProbe {
  enum class State {
    kHealthy = GPUSHARE_GPU_HEALTHY,
    // Another process or a limit keeps this process out; trying later may help.
    kBusy = GPUSHARE_GPU_BUSY,
    kAbsent = GPUSHARE_GPU_ABSENT,  // no such GPU
    kFailed = GPUSHARE_GPU_FAILED,  // the GPU exists and does not work
  };
  State state = State::kAbsent;
  std::string reason;  // why it is not healthy
  int ordinal = 0;
  int sm_count = 0;
  std::string name, uuid, pci_id;
  int compute_major = 0, compute_minor = 0;
  bool mig = false;
  bool mps = false;
  int mps_percentage = 0;  // 0: no limit
  Bytes memory_total, memory_free;
  Bytes mps_memory_limit, dmem_limit;  // 0: no limit
  Bytes memory_promised;               // sum of the quotas given out by this runtime
  Share guarantees_promised;
};

// The memory that the process itself takes of a GPU, outside all quotas.
struct MemoryOverhead {
  Bytes by_driver;  // what the process holds, by the driver's count
  Bytes charged;    // the part charged to virtual devices
  Bytes overhead;   // the rest: contexts, modules, and what libraries took past gpushare
  Bytes reserve;    // memory that is never promised, to leave room for the overhead
};

namespace internal {
inline GpuProbe FromC(const gpushare_gpu_probe& c) {
  GpuProbe p;
  p.state = static_cast<GpuProbe::State>(c.state);
  p.reason = c.reason;
  p.ordinal = c.ordinal;
  p.sm_count = c.sm_count;
  p.name = c.name;
  p.uuid = c.uuid;
  p.pci_id = c.pci_id;
  p.compute_major = c.compute_major;
  p.compute_minor = c.compute_minor;
  p.mig = c.mig != 0;
  p.mps = c.mps != 0;
  p.mps_percentage = c.mps_percentage;
  p.memory_total = Bytes(c.memory_total);
  p.memory_free = Bytes(c.memory_free);
  p.mps_memory_limit = Bytes(c.mps_memory_limit);
  p.dmem_limit = Bytes(c.dmem_limit);
  p.memory_promised = Bytes(c.memory_promised);
  p.guarantees_promised = Share::Fraction(c.guarantees_promised);
  return p;
}
}  // namespace internal

class Gpu {
 public:
  // `name`: ordinal ("0"), UUID or PCI id.
  static absl::StatusOr<Gpu> Open(const Runtime& runtime, const std::string& name = "0") {
    return OpenWith(runtime, name, nullptr);
  }
  static absl::StatusOr<Gpu> Open(const Runtime& runtime, const std::string& name,
                                  const SchedulerOptions& scheduler) {
    const gpushare_scheduler_options c = internal::ToC(scheduler);
    return OpenWith(runtime, name, &c);
  }

  // Returns OK also for a GPU that is absent or does not work: the probe says why.
  static absl::StatusOr<GpuProbe> Probe(const Runtime& runtime, const std::string& name = "0") {
    const absl::Status text = internal::CheckText("GPU name", name);
    if (!text.ok()) return text;
    gpushare_gpu_probe c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_runtime_probe(runtime.handle(), name.c_str(), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return internal::FromC(c);
  }
  absl::StatusOr<GpuProbe> Probe() const {
    gpushare_gpu_probe c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_gpu_get_probe(handle_.get(), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return internal::FromC(c);
  }

  // An estimate from NVML, for monitoring: the call takes milliseconds. Unavailable: NVML has no figures for this process,
  // for instance if it has its own PID namespace.
  absl::StatusOr<MemoryOverhead> Overhead() const {
    gpushare_overhead c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_gpu_get_overhead(handle_.get(), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return MemoryOverhead{.by_driver = Bytes(c.by_driver),
                          .charged = Bytes(c.charged),
                          .overhead = Bytes(c.overhead),
                          .reserve = Bytes(c.reserve)};
  }

  // Closes the GPU like the destructor, and returns the result. If nothing else uses the GPU, waits at most 5 s for
  // work on streams that were destroyed while they were busy. DeadlineExceeded names the tenants whose work still runs;
  // their context and memory are then left to the driver until the process ends.
  absl::Status Close() { return internal::ToStatus(gpushare_gpu_close(handle_.release())); }

  // The scheduler options in force.
  absl::StatusOr<SchedulerOptions> scheduler() const {
    gpushare_scheduler_options c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_gpu_get_scheduler(handle_.get(), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return internal::FromC(c);
  }

  // Allocates for the tenant for which the calling thread works (tenant.h). Prefer an Allocator, which names its virtual
  // device.
  absl::StatusOr<DevicePtr> Allocate(Bytes size) const {
    gpushare_device_ptr pointer = 0;
    const gpushare_status code = gpushare_gpu_alloc(handle_.get(), size.count(), &pointer);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return DevicePtr(pointer);
  }
  // Credits the virtual device that allocated the memory. The driver frees memory that gpushare did not allocate.
  absl::Status Free(DevicePtr pointer) const {
    return internal::ToStatus(gpushare_gpu_free(handle_.get(), pointer.value()));
  }

  gpushare_gpu handle() const { return handle_.get(); }

 private:
  static absl::StatusOr<Gpu> OpenWith(const Runtime& runtime, const std::string& name,
                                      const gpushare_scheduler_options* scheduler) {
    const absl::Status text = internal::CheckText("GPU name", name);
    if (!text.ok()) return text;
    gpushare_gpu gpu = nullptr;
    const gpushare_status code = gpushare_gpu_open(runtime.handle(), name.c_str(), scheduler, &gpu);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Gpu(gpu);
  }
  explicit Gpu(gpushare_gpu handle) : handle_(handle) {}
  internal::Handle<gpushare_gpu, gpushare_gpu_close> handle_;
};

}  // namespace gpushare

#endif  // GPUSHARE_GPU_H_
