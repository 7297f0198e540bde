// SPDX-License-Identifier: Apache-2.0
#include "device/share/virtual_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/abi/last_error.h"
#include "device/lease/pending_lease.h"
#include "device/memory/driver_pool.h"
#include "device/memory/swappable_memory.h"
#include "device/process/runtime.h"
#include "device/share/process_tenants.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

gate::TenantOptions GateOptions(const spec::Limits& limits) {
  return {limits.compute, limits.h2d_bytes_per_s, limits.d2h_bytes_per_s};
}

}  // namespace

VirtualDevice::VirtualDevice(std::shared_ptr<Gpu> gpu, std::shared_ptr<Tenant> tenant)
    : gpu_(std::move(gpu)),
      raw_gpu_(gpu_.get()),
      tenant_(std::move(tenant)),
      own_site_{.driver = raw_gpu_->driver()},
      door_(raw_gpu_->clock()),
      work_door_(raw_gpu_->clock()) {}

absl::StatusOr<std::shared_ptr<VirtualDevice>> VirtualDevice::Create(std::shared_ptr<Gpu> gpu,
                                                                     std::shared_ptr<Tenant> tenant,
                                                                     const gpushare_spec& spec) {
  const std::shared_ptr<VirtualDevice> device(new VirtualDevice(std::move(gpu), std::move(tenant)),
                                              [](VirtualDevice* last) { last->Retire(); });
  GPUSHARE_RETURN_IF_ERROR(device->Start(spec));
  device->gpu().AddDevice(device);
  device->tenant().SetDevice(&device->gpu(), device);
  device->RecordMemory();
  return device;
}

absl::Status VirtualDevice::Start(const gpushare_spec& spec) {
  if (spec.set & GPUSHARE_SPEC_ISOLATION) isolation_ = spec.isolation;
  GPUSHARE_RETURN_IF_ERROR(FindParent());
  GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits, Resolve(spec));
  if (raw_parent_ != nullptr) {
    GPUSHARE_ASSIGN_OR_RETURN(
        own_account_,
        quota::Account::Create(limits.memory.value_or(quota::kUnlimited), &raw_parent_->account()));
  } else if (limits.memory.has_value()) {
    GPUSHARE_ASSIGN_OR_RETURN(
        own_account_, quota::Account::Create(*limits.memory, limits.memory_cap, gpu_->loans()));
  } else if (!SpendsAll()) {
    GPUSHARE_ASSIGN_OR_RETURN(own_account_,
                              quota::Account::Create(quota::kUnlimited, &gpu_->unpromised()));
  }
  account_ = own_account_ != nullptr ? own_account_.get() : &gpu_->unpromised();
  {
    base::MutexLock lock(&mutex_);
    spec_ = spec;
    limits_ = limits;
  }
  band_ = limits.compute.band;
  guaranteed_ = limits.compute.guarantee > 0;
  GPUSHARE_RETURN_IF_ERROR(EnterProcess(*tenant_, has_process()));
  entered_ = true;
  GPUSHARE_ASSIGN_OR_RETURN(seat_, gpu_->Admit(this, limits));
  seated_ = true;
  GPUSHARE_RETURN_IF_ERROR(StartIsolation(limits));
  return StartGate(GateOptions(limits));
}

// A program that knows nothing of gpushare has one virtual device, and no second account to charge.
bool VirtualDevice::SpendsAll() const {
  const Runtime& runtime = *gpu_->runtime();
  return gpu_->session() != nullptr && runtime.of_process() && tenant_ == runtime.default_tenant();
}

std::shared_ptr<LeaseLine> VirtualDevice::lease_line() {
  const base::MutexLock lock(&mutex_);
  if (lease_line_ == nullptr) lease_line_ = std::make_shared<LeaseLine>(*this);
  return lease_line_;
}

void VirtualDevice::Retire() {
  SetReclaimer(nullptr);
  std::shared_ptr<LeaseLine> line;
  {
    const base::MutexLock lock(&mutex_);
    line.swap(lease_line_);
  }
  line.reset();  // waits for its thread, which waits for nothing
  // The GPU may go with us; it must not go before. Nor may the parent, whose share this is a part of.
  const std::shared_ptr<Gpu> gpu = std::move(gpu_);
  const std::shared_ptr<VirtualDevice> parent = std::move(parent_);
  EndIsolation();
  if (entered_) LeaveProcess(*tenant_, has_process());
  if (seated_) gpu->Return(this);
  Unhold();
}

bool VirtualDevice::TryHold() {
  uint64_t holds = holds_.load(std::memory_order_relaxed);
  while (holds != 0 && !holds_.compare_exchange_weak(holds, holds + 1)) {
  }
  return holds != 0;
}

void VirtualDevice::Unhold() {
  if (holds_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (const std::shared_ptr<DriverPool> pool = driver_pool()) pool->End();
  if (const std::shared_ptr<SwappableMemory> memory = swappable()) memory->End();
  if (seated_) raw_gpu_->Forget(this);
  VirtualDevice* const parent = raw_parent_;
  delete this;
  if (parent == nullptr) return;
  parent->children_.fetch_sub(1, std::memory_order_relaxed);
  parent->Unhold();
}

// ---- Limits ----

absl::Status VirtualDevice::Resize(const gpushare_spec& change) {
  for (bool done = false; !done;) {
    uint64_t seen = 0;
    spec::Limits planned;
    {
      base::MutexLock lock(&mutex_);
      seen = version_;
      GPUSHARE_ASSIGN_OR_RETURN(planned, Resolve(spec::MergeSpec(spec_, change)));
    }
    // Calls the driver. After the lock below, when it holds what was there before.
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Partition> partition, ChangePartition(planned));
    // Destroyed without the lock below: each may be the last reference.
    std::vector<std::shared_ptr<VirtualDevice>> others;
    if (has_children()) others = raw_gpu_->Devices();
    base::MutexLock lock(&mutex_);
    if (version_ != seen) continue;  // another thread was faster
    gpushare_spec spec = spec::MergeSpec(spec_, change);
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits, Resolve(spec));
    if (limits.memory.has_value() && SpendsAll()) {
      return absl::FailedPreconditionError(
          absl::StrCat("tenant ", Quoted(tenant_->name()),
                       ": spec field 'memory': the broker says what this process may hold; an "
                       "operator changes it with 'gpushare set'"));
    }
    if (limits.memory.has_value() != limits_.memory.has_value() && raw_parent_ == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("tenant ", Quoted(tenant_->name()),
                       ": spec field 'memory': a virtual device that was made without a memory "
                       "quota cannot get one; "
                       "create it with 'memory'"));
    }
    if (limits.memory_cap.has_value() != limits_.memory_cap.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("tenant ", Quoted(tenant_->name()),
                       ": spec field 'memory_cap': a virtual device that was made without it "
                       "cannot borrow later; create it with 'memory_cap', which may equal "
                       "'memory'"));
    }
    GPUSHARE_RETURN_IF_ERROR(CheckChildren(limits, others));
    GPUSHARE_RETURN_IF_ERROR(gpu_->Change(this, limits));
    spec_ = spec;
    limits_ = limits;
    ++version_;
    if (partition != nullptr) partition_.swap(partition);
    done = true;
  }
  // The gate wakes waiters, so no lock is held. When two threads resize at once, the later limits
  // win.
  for (;;) {
    gate::TenantOptions options;
    uint64_t version;
    {
      base::MutexLock lock(&mutex_);
      version = version_;
      options = GateOptions(limits_);
    }
    band_ = options.limits.band;
    guaranteed_ = options.limits.guarantee > 0;
    gate_->Update(InnerLimits(options));
    base::MutexLock lock(&mutex_);
    if (version == version_) return absl::OkStatus();
  }
}

gpushare_spec VirtualDevice::spec() const {
  base::MutexLock lock(&mutex_);
  return spec_;
}

absl::Status VirtualDevice::SuspendedTooLong() const {
  return absl::DeadlineExceededError(
      absl::StrCat("tenant ", Quoted(tenant_->name()), ": its virtual device on GPU ",
                   raw_gpu_->ordinal(), " is suspended, and was not resumed before the timeout"));
}

// ---- Statistics ----

void VirtualDevice::RecordMemory() const {
  gate::Recorder& recorder = *raw_gpu_->recorder();
  if (!recorder.on()) [[likely]] {
    return;
  }
  const Time now = raw_gpu_->clock().Now();
  uint64_t free_bytes = 0, total = 0;
  Memory(&free_bytes, &total);
  recorder.Record({.kind = gate::TraceEvent::Kind::kMemory,
                   .begin = now,
                   .end = now,
                   .value = static_cast<int64_t>(account_->Usage().committed),
                   .other = total},
                  tenant_->name());
}

void VirtualDevice::RecordDenied(uint64_t bytes, uint64_t left, uint8_t flags) const {
  gate::Recorder& recorder = *raw_gpu_->recorder();
  if (!recorder.on()) return;
  const Time now = raw_gpu_->clock().Now();
  recorder.Record({.kind = gate::TraceEvent::Kind::kDenied,
                   .flags = flags,
                   .begin = now,
                   .end = now,
                   .value = static_cast<int64_t>(bytes),
                   .other = left},
                  tenant_->name());
}

gpushare_vdev_stats VirtualDevice::Stats(Time now) const {
  gpushare_vdev_stats s = {};
  s.struct_size = sizeof(s);
  s.gpu = raw_gpu_->ordinal();
  s.time_ns = now.time_since_epoch().count();
  std::strncpy(s.tenant, tenant_->name().c_str(), sizeof(s.tenant) - 1);
  if (raw_parent_ != nullptr) {
    std::strncpy(s.parent, raw_parent_->tenant().name().c_str(), sizeof(s.parent) - 1);
  }
  s.suspended = suspended_ ? 1 : 0;
  {
    base::MutexLock lock(&mutex_);
    const sched::TenantLimits& limits = limits_.compute;
    s.weight = limits.weight;
    s.guarantee = limits.guarantee;
    s.cap = limits.cap;
    s.priority = limits.band == sched::Band::kHigh  ? GPUSHARE_PRIORITY_HIGH
                 : limits.band == sched::Band::kLow ? GPUSHARE_PRIORITY_LOW
                                                    : GPUSHARE_PRIORITY_NORMAL;
  }
  const std::shared_ptr<DriverPool> pool = driver_pool();
  if (pool != nullptr) pool->Refresh();
  const quota::AccountUsage memory = account_->Usage();
  uint64_t free_bytes = 0;
  Memory(&free_bytes, &s.memory_limit);
  s.memory_borrowed = memory.borrowed;
  s.memory_lent = memory.lent;
  if (const std::shared_ptr<SwappableMemory> swappable = this->swappable()) {
    const SwappableMemory::Figures moved = swappable->figures();
    s.memory_swapped = moved.host_bytes;
    s.swapped_out_bytes = moved.moved_out;
    s.swapped_in_bytes = moved.moved_in;
    s.swaps_out = moved.times_out;
    s.swaps_in = moved.times_in;
    s.swap_ns = moved.took.count();
  }
  s.memory_used = memory.committed;  // what the driver has not answered yet is in no peak either
  s.memory_peak = memory.peak;
  s.memory_denied = memory.denied;
  s.memory_denied_bytes = denied_bytes_.load(std::memory_order_relaxed);
  // Beside allocations the shared_ptrs and what the pool has reserved are reasons to exist.
  s.allocations = holds_.load(std::memory_order_relaxed) - 1 - children_.load();
  if (pool != nullptr && pool->holds() && s.allocations != 0) --s.allocations;

  const gate::GateStats gate = gate_->stats();
  s.launches = gate.launches;
  s.graph_launches = gate.graph_launches;
  s.waits = gate.waits;
  s.throttled_ns = gate.throttled.count();
  s.wait_p50_ns = gate.WaitQuantile(0.5).count();
  s.wait_p99_ns = gate.WaitQuantile(0.99).count();
  static_assert(GPUSHARE_WAIT_BUCKETS == gate::kWaitBuckets);
  std::copy(gate.wait_histogram.begin(), gate.wait_histogram.end(), s.wait_histogram);
  s.predicted_ns = gate.predicted.count();
  s.measured_ns = gate.measured.count();
  s.charged_ns = gate_->view().charged.count();
  s.markers = gate.markers;
  s.markers_failed = gate.markers_failed;
  std::strncpy(s.driver_error, gate.driver_error.c_str(), sizeof(s.driver_error) - 1);
  s.held_past_bound = gate.held_past_bound;
  s.h2d_bytes = gate.copy_bytes[0];
  s.d2h_bytes = gate.copy_bytes[1];
  s.h2d_throttled_ns = gate.copy_throttled[0].count();
  s.d2h_throttled_ns = gate.copy_throttled[1].count();
  return s;
}

}  // namespace gpushare::device
