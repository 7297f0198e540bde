// SPDX-License-Identifier: Apache-2.0
// What sets a virtual device apart from the others on its GPU: a context of its own, a partition of the SMs.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "books/books.h"
#include "device/memory/memory_pool.h"
#include "device/memory/swappable_memory.h"
#include "device/share/virtual_device.h"
#include "driver/current_context.h"
#include "spec/text.h"

namespace gpushare::device {

absl::StatusOr<spec::Limits> VirtualDevice::Resolve(const gpushare_spec& spec) const {
  if ((spec.set & GPUSHARE_SPEC_ISOLATION) && spec.isolation != isolation_) {
    return absl::FailedPreconditionError(
        absl::StrCat("tenant ", Quoted(tenant_->name()),
                     ": spec field 'isolation': it cannot change while the virtual device is "
                     "there; close it, and create another one"));
  }
  if (isolation_ == GPUSHARE_ISOLATION_PROCESS && raw_gpu_->session() == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("tenant ", Quoted(tenant_->name()),
                     ": spec field 'isolation': process given, and no broker divides the GPU "
                     "between processes; name one (the runtime's 'broker', GPUSHARE_BROKER), or "
                     "use 'context'"));
  }
  GPUSHARE_ASSIGN_OR_RETURN(spec::Limits limits,
                            spec::ResolveSpec(spec, DefaultPriority(), raw_gpu_->capacity()));
  if (raw_parent_ != nullptr) GPUSHARE_RETURN_IF_ERROR(CheckWithinParent(limits));
  if (isolation_ != GPUSHARE_ISOLATION_GREEN) return limits;
  double& share = limits.compute.guarantee;
  if (share <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tenant ", Quoted(tenant_->name()),
        ": spec field 'isolation': green given without 'compute' or 'guarantee', which say how "
        "many SMs it has; add one (compute=30%, say)"));
  }
  GPUSHARE_ASSIGN_OR_RETURN(share, raw_gpu_->partitions().Round(share));
  return limits;
}

absl::Status VirtualDevice::StartIsolation(const spec::Limits& limits) {
  if (isolation_ == GPUSHARE_ISOLATION_CONTEXT) {
    driver::Context context = nullptr;
    GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(
        raw_gpu_->driver().CreateContext(&context, raw_gpu_->ordinal()), "cuCtxCreate"));
    own_site_.context = context;
    own_site_.id = ContextScope::NewSite();
    has_context_ = true;
    return absl::OkStatus();
  }
  if (isolation_ != GPUSHARE_ISOLATION_GREEN) return absl::OkStatus();
  GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Partition> made, ChangePartition(limits));
  GPUSHARE_ASSIGN_OR_RETURN(own_engine_, raw_gpu_->NewEngine(made->sms()));
  base::MutexLock lock(&mutex_);
  partition_ = std::move(made);
  return absl::OkStatus();
}

// Null: the one that there is does.
absl::StatusOr<std::shared_ptr<Partition>> VirtualDevice::ChangePartition(
    const spec::Limits& limits) const {
  if (isolation_ != GPUSHARE_ISOLATION_GREEN) return nullptr;
  const std::shared_ptr<Partition> old = partition();
  const double share = limits.compute.guarantee;
  if (old != nullptr && old->share() == share) return nullptr;
  return raw_gpu_->partitions().Make(tenant_->name(), share, old.get());
}

// A partition's engine has this tenant only, and knows time on its SMs: a cap of 10 % of the GPU is one of half
// the time on a fifth of the SMs.
gate::TenantOptions VirtualDevice::InnerLimits(gate::TenantOptions options) const {
  const std::shared_ptr<Partition> own = partition();
  if (own == nullptr) return options;
  options.limits.guarantee = 0;
  options.limits.cap = std::min(1.0, options.limits.cap / own->share());
  return options;
}

absl::Status VirtualDevice::StartGate(const gate::TenantOptions& options) {
  gate::Engine& engine = own_engine_ != nullptr ? *own_engine_ : raw_gpu_->engine();
  GPUSHARE_ASSIGN_OR_RETURN(
      gate_, engine.AddTenant(tenant_->name(), InnerLimits(options), site().context,
                              raw_parent_ == nullptr ? nullptr : &raw_parent_->gate()));
  return absl::OkStatus();
}

std::shared_ptr<Partition> VirtualDevice::partition() const {
  base::MutexLock lock(&mutex_);
  return partition_;
}

driver::Context VirtualDevice::native_context() const {
  const std::shared_ptr<Partition> own = partition();
  return own != nullptr ? own->context() : site().context;
}

absl::Status VirtualDevice::CheckStream(driver::Stream native) const {
  driver::Context of = nullptr;
  const driver::Result result = raw_gpu_->driver().StreamContext(native, &of);
  if (result == driver::Result::kNotSupported) return absl::OkStatus();
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(result, "cuStreamGetCtx"));
  if (of == native_context()) return absl::OkStatus();
  const char* const wanted = has_context_             ? "the virtual device's own context"
                             : partition() != nullptr ? "the green context of its SMs"
                                                      : "the GPU's primary context";
  return absl::FailedPreconditionError(
      absl::StrCat("tenant ", Quoted(tenant_->name()), " on GPU ", raw_gpu_->ordinal(),
                   ": the stream is of another context than ", wanted,
                   ", which alone it can be bound from; make it while that is current "
                   "(VirtualDevice::native_context())"));
}

void VirtualDevice::EndIsolation() {
  if (has_context_) {
    // As when a GPU is closed: what was given to it is done, unless it never ends.
    const ContextScope current(site());
    base::Clock& clock = raw_gpu_->clock();
    static_cast<void>(own_unfinished_.Await(
        clock, clock.Now() + Nanos(static_cast<int64_t>(GPUSHARE_CLOSE_GRACE_NS))));
  }
  if (gate_ != nullptr) {
    if (has_context_) gate_->ContextEnds(own_site_.context);
    (own_engine_ != nullptr ? *own_engine_ : raw_gpu_->engine()).RemoveTenant(gate_);
  }
  gate_ = nullptr;
  own_engine_.reset();
  if (has_context_) EndContext();
  std::shared_ptr<Partition> last;  // destroyed without the lock
  base::MutexLock lock(&mutex_);
  last.swap(partition_);
}

// Its memory goes with it, also what is left of a context that was lost. It is charged until it has gone.
void VirtualDevice::EndContext() {
  base::Clock& clock = raw_gpu_->clock();
  door_.Close(clock.Now() + Nanos(static_cast<int64_t>(GPUSHARE_CLOSE_GRACE_NS)));
  std::vector<std::weak_ptr<MemoryPool>> pools;
  {
    base::MutexLock lock(&mutex_);
    pools.swap(pools_);
  }
  std::vector<uint64_t> gone;
  std::vector<driver::DevicePtr> swappable;  // which are of no context
  for (const auto& weak : pools) {
    const std::shared_ptr<MemoryPool> pool = weak.lock();
    if (pool == nullptr) continue;
    for (const uint64_t bytes : pool->Forget()) gone.push_back(bytes);
  }
  for (const auto& [pointer, allocation] : raw_gpu_->runtime()->books().TakeAllOf(account_)) {
    gone.push_back(allocation.bytes);
  }
  for (const auto& [pointer, allocation] : raw_gpu_->unbooked().TakeAllOf(account_)) {
    swappable.push_back(pointer);  // there is no driver's pool here
  }
  ContextScope::Forget(own_site_);
  {
    // By the books: what a program allocated or freed in this context ends with it, whoever paid.
    const driver::CurrentContext::Change change(driver::CurrentContext::kOfAll);
    static_cast<void>(raw_gpu_->runtime()->books().CtxDestroy(own_site_.context));
  }
  door_.Ended();
  for (const uint64_t bytes : gone) Abandon(bytes);
  const std::shared_ptr<SwappableMemory> memory = this->swappable();
  for (const driver::DevicePtr pointer : swappable) memory->Abandon(pointer, /*give=*/true);
}

}  // namespace gpushare::device
