// SPDX-License-Identifier: Apache-2.0
#include "broker/registry.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "broker/tenant_spec.h"
#include "spec/spec.h"
#include "spec/text.h"

namespace gpushare::broker {
namespace {

// Limits on what processes may say about GPUs if the broker does not know the GPUs itself.
constexpr size_t kMostNamedGpus = 64, kMostUuid = 64;
constexpr uint64_t kMostMemory = uint64_t{1} << 50;
constexpr uint32_t kMostSms = uint32_t{1} << 20;

// The spec that the process applies itself. Device time is left out: the broker divides it.
gpushare_spec ForProcess(const Registry::Share& share, uint64_t memory) {
  gpushare_spec spec = share.spec;
  spec.set &= GPUSHARE_SPEC_H2D | GPUSHARE_SPEC_D2H | GPUSHARE_SPEC_PRIORITY;
  if (share.parent != nullptr) {  // it may have its parent's
    spec.set |= GPUSHARE_SPEC_PRIORITY;
    spec.priority = spec::PriorityOf(share.limits.compute.band);
  }
  spec.set |= GPUSHARE_SPEC_MEMORY;
  spec.memory = memory;
  return spec;
}

}  // namespace

Registry::Registry(const std::vector<GpuInfo>& gpus) : knows_gpus_(!gpus.empty()) {
  for (const GpuInfo& info : gpus) AddGpu(info);
}

Registry::Gpu& Registry::AddGpu(const GpuInfo& info) {
  auto gpu = std::make_unique<Gpu>();
  gpu->info = info;
  gpu->pool.before_told = [this] {
    if (keep_) keep_();
  };
  gpu->time.Configure({.slice = config_.slice, .floor = config_.floor});
  return *(gpus_[info.uuid] = std::move(gpu));
}

absl::Status Registry::NoGpu(const std::string& uuid) const {
  std::string there;
  for (const auto& [known, gpu] : gpus_) absl::StrAppend(&there, " ", known);
  return absl::NotFoundError(absl::StrCat("the broker has no GPU ", uuid, "; it has",
                                          there.empty() ? " none yet" : there));
}

// ---- Shares

absl::StatusOr<Registry::Gpu*> Registry::FindGpu(const ipc::OpenGpu& open, Time now,
                                                 Changed& changed) {
  if (const auto at = gpus_.find(open.uuid); at != gpus_.end()) return at->second.get();
  if (knows_gpus_) return NoGpu(open.uuid);
  if (gpus_.size() >= kMostNamedGpus) ForgetUnusedGpus(now, changed);
  if (open.uuid.empty() || open.uuid.size() > kMostUuid || open.memory == 0 ||
      open.memory > kMostMemory || open.sm_count > kMostSms || gpus_.size() >= kMostNamedGpus) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU: a UUID of at most ", kMostUuid, " bytes, a memory above 0, up to ",
                     spec::ReadableBytes(kMostMemory), ", and up to ", kMostSms,
                     " SMs are wanted, of ", kMostNamedGpus, " at most"));
  }
  Gpu& gpu = AddGpu(
      {.uuid = open.uuid, .memory = open.memory, .sm_count = static_cast<int>(open.sm_count)});
  gpu.SetCapacity(CapacityOf(gpu.info, config_), changed);
  return &gpu;
}

absl::Status Registry::Admit(const Gpu& gpu, const std::string& tenant, const spec::Limits& limits,
                             const Share* but, const Share* parent) const {
  if (parent == nullptr) return AdmitOnGpu(gpu, tenant, limits, but);
  const double others =
      parent->children_guaranteed - (but != nullptr ? but->limits.compute.guarantee : 0);
  const absl::Status within =
      CheckWithin(tenant, limits, parent->tenant->name, parent->limits, others);
  if (within.ok()) return within;
  return absl::Status(within.code(),
                      absl::StrCat("on GPU ", gpu.info.uuid, ": ", within.message()));
}

absl::Status Registry::AdmitOnGpu(const Gpu& gpu, const std::string& tenant,
                                  const spec::Limits& limits, const Share* but) const {
  const uint64_t promised = gpu.promised - (but != nullptr ? but->limits.memory.value_or(0) : 0);
  const double guaranteed = gpu.guaranteed - (but != nullptr ? but->limits.compute.guarantee : 0);
  const uint64_t memory = limits.memory.value_or(0);
  if (memory > gpu.capacity - std::min(promised, gpu.capacity)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "tenant '", tenant, "' on GPU ", gpu.info.uuid, ": memory: ", spec::ReadableBytes(memory),
        " asked, ", spec::ReadableBytes(gpu.capacity - std::min(promised, gpu.capacity)),
        " not promised of ", spec::ReadableBytes(gpu.capacity),
        "; ask for less, or lower another tenant's 'memory'"));
  }
  if (guaranteed + limits.compute.guarantee > 1 + kGuaranteeRounding) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tenant '", tenant, "' on GPU ", gpu.info.uuid,
                     ": compute: ", spec::FormatShare(limits.compute.guarantee), " asked, ",
                     spec::FormatShare(std::round(std::max(0.0, 1 - guaranteed) * 1e9) / 1e9),
                     " not guaranteed to anybody yet; ask for less, or lower another tenant's "
                     "'guarantee' or 'compute'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Registry::Share*> Registry::ShareOf(Tenant& tenant, Gpu& gpu, Time now,
                                                   Changed& changed, const std::string* own) {
  const auto at = gpu.shares.find(tenant.name);
  if (at != gpu.shares.end() && !at->second->dormant) return at->second.get();
  // A tenant that is not listed chooses its own spec.
  TenantConfig config = tenant.config;
  if (own != nullptr && !tenant.listed) config.spec = *own;
  if (at != gpu.shares.end()) {
    Share& there = *at->second;
    gpushare_spec spec = there.spec;
    if (!there.set) {
      GPUSHARE_ASSIGN_OR_RETURN(spec, SpecOn(config, gpu.info.uuid));
    }
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits,
                              LimitsOf(spec, LimitsOfParent(there), gpu.capacity));
    GPUSHARE_RETURN_IF_ERROR(Admit(gpu, tenant.name, limits, &there, there.parent));
    if (!tenant.listed && !there.set) {
      GPUSHARE_RETURN_IF_ERROR(AdmitHigh(gpu, tenant.name, limits));
    }
    Assign({&there, spec, limits}, now, changed);
    return &there;
  }
  Share* parent = nullptr;
  if (tenant.parent != nullptr) {
    GPUSHARE_ASSIGN_OR_RETURN(parent, ShareOf(*tenant.parent, gpu, now, changed));
  }
  GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec spec, SpecOn(config, gpu.info.uuid));
  GPUSHARE_ASSIGN_OR_RETURN(
      const spec::Limits limits,
      LimitsOf(spec, parent == nullptr ? nullptr : &parent->limits, gpu.capacity));
  GPUSHARE_RETURN_IF_ERROR(Admit(gpu, tenant.name, limits, nullptr, parent));
  if (!tenant.listed && parent == nullptr) {
    GPUSHARE_RETURN_IF_ERROR(AdmitHigh(gpu, tenant.name, limits));
  }
  return MakeShare(tenant, gpu, parent, spec, limits, now, changed);
}

Registry::Share* Registry::MakeShare(Tenant& tenant, Gpu& gpu, Share* parent,
                                     const gpushare_spec& spec, const spec::Limits& limits,
                                     Time now, Changed& changed) {
  auto share = std::make_unique<Share>();
  share->tenant = &tenant;
  share->gpu = &gpu;
  share->spec = spec;
  share->limits = limits;
  if (parent != nullptr) {
    share->parent = parent;
    share->family = parent->family;
    share->copies.SetParent(&parent->copies);
  }
  MakeQuota(*share);
  Promise(*share, limits);
  gpu.unpromised.SetLimit(gpu.capacity - std::min(gpu.promised, gpu.capacity), changed);
  share->time = gpu.time.AddTenant(limits.compute, now, &tenant.collective,
                                   parent == nullptr ? nullptr : parent->time);
  gpu.time.Suspend(share->time, tenant.suspended, now, changed);
  share->copies.SetLimits(limits, now, changed);
  return (gpu.shares[tenant.name] = std::move(share)).get();
}

// Whether the share may gain or lose a quota.
absl::Status Registry::CheckQuota(const Share& share, const spec::Limits& limits) const {
  if (share.dormant) return absl::OkStatus();
  const auto has_members = [](const MemoryBook* book) { return !book->members().empty(); };
  // A parent's quota is its children's too.
  const bool is_parents = share.quota != nullptr && share.parent == nullptr;
  const bool used =
      is_parents ? std::any_of(share.family->books.begin(), share.family->books.end(), has_members)
      : share.quota != nullptr ? has_members(share.quota.get())
                               : share.tenant->sessions > 0;
  if (limits.memory.has_value() == share.limits.memory.has_value() || !used) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "tenant '", share.tenant->name, "' on GPU ", share.gpu->info.uuid,
      ": a quota of memory cannot come or go while its processes run; end them first"));
}

void Registry::Promise(Share& share, const spec::Limits& limits, bool gives_back) {
  const double guarantee = limits.compute.guarantee * (gives_back ? -1 : 1);
  const uint64_t memory = gives_back ? 0 - limits.memory.value_or(0) : limits.memory.value_or(0);
  double& guaranteed =
      share.parent != nullptr ? share.parent->children_guaranteed : share.gpu->guaranteed;
  guaranteed += guarantee;
  // The rounding of sums must not be shown, as -0.0 %.
  if (std::abs(guaranteed) < kGuaranteeRounding) guaranteed = 0;
  if (share.parent == nullptr) share.gpu->promised += memory;
}

// Makes the share's book of memory as its limits say.
void Registry::MakeQuota(Share& share) {
  share.quota.reset();
  if (share.parent == nullptr) share.family.reset();
  if (!share.limits.memory) return;
  if (share.parent == nullptr) {
    share.family = std::make_shared<MemoryPool>();
    share.family->within = &share.gpu->pool;
    share.family->SetCapacity(*share.limits.memory);
  }
  const uint64_t limit = std::min(*share.limits.memory, share.family->capacity);
  share.quota = std::make_unique<MemoryBook>(limit, share.family.get());
}

// The quota has changed: of a child or, with what follows for its children, of a parent.
void Registry::SetQuota(Share& share, Changed& changed) {
  if (share.quota == nullptr) return;
  if (share.parent == nullptr) share.family->SetCapacity(*share.limits.memory);
  share.quota->SetLimit(std::min(*share.limits.memory, share.family->capacity), changed);
  if (share.tenant->children == 0) return;
  for (const auto& [name, other] : share.gpu->shares) {
    if (other->parent == &share) SetQuota(*other, changed);
  }
}

void Registry::SetParent(Tenant& tenant, Tenant* parent) {
  if (tenant.parent != nullptr) --tenant.parent->children;
  tenant.parent = parent;
  if (parent != nullptr) ++parent->children;
}

void Registry::Assign(const Checked& change, Time now, Changed& changed) {
  Share& share = *change.share;
  spec::Limits limits = change.limits;
  if (change.dormant) {
    limits.memory.reset();
    limits.compute.guarantee = 0;
  }
  Gpu& gpu = *share.gpu;
  const bool other_quota = limits.memory.has_value() != share.limits.memory.has_value();
  Promise(share, share.limits, /*gives_back=*/true);
  Promise(share, limits);
  share.spec = change.spec;
  share.limits = limits;
  share.dormant = change.dormant;
  if (other_quota) MakeQuota(share);
  SetQuota(share, changed);
  gpu.unpromised.SetLimit(gpu.capacity - std::min(gpu.promised, gpu.capacity), changed);
  gpu.time.Update(share.time, limits.compute, now, changed);
  share.copies.SetLimits(limits, now, changed);
}

void Registry::Remove(Share& share, Time now, Changed& changed) {
  Gpu& gpu = *share.gpu;
  Promise(share, share.limits, /*gives_back=*/true);
  gpu.unpromised.SetLimit(gpu.capacity - std::min(gpu.promised, gpu.capacity), changed);
  gpu.time.RemoveTenant(share.time, now);
  const std::string name = share.tenant->name;
  gpu.shares.erase(name);
}

// ---- Processes

absl::StatusOr<std::string> Registry::Open(Session& session, const ipc::OpenGpu& open, Seat& seat,
                                           Time now, Changed& changed, const std::string* own) {
  GPUSHARE_ASSIGN_OR_RETURN(Gpu* const gpu, FindGpu(open, now, changed));
  Place* held = nullptr;  // the place on this GPU in the process's former session
  for (Place& place : session.former == nullptr ? session.places : session.former->places) {
    if (session.former != nullptr && place.share->gpu == gpu) held = &place;
  }
  if (gpu->draining && held == nullptr) {
    return absl::UnavailableError(absl::StrCat("GPU ", open.uuid, " is being drained"));
  }
  const bool there = std::any_of(session.places.begin(), session.places.end(),
                                 [gpu](const Place& place) { return place.share->gpu == gpu; });
  if (there) {
    return absl::AlreadyExistsError(
        absl::StrCat("this process has opened GPU ", open.uuid, " before"));
  }
  GPUSHARE_ASSIGN_OR_RETURN(Share* const share, ShareOf(*session.tenant, *gpu, now, changed, own));
  MemoryBook& book = BookOf(*share);
  Place& place = session.places.emplace_back(Place{.share = share, .seat = &seat});
  place.memory = book.Enter(seat, changed, session.tenant->draining || gpu->draining,
                            held == nullptr ? nullptr : held->memory);
  if (held != nullptr) {
    session.former->places.remove_if([held](const Place& other) { return &other == held; });
  }
  place.time = gpu->time.Join(share->time, seat, now, changed);
  place.copies = share->copies.Join(seat, changed);
  place.link = gpu->link.Join(share->time, seat, changed);
  book.Announce(changed);
  return spec::FormatSpec(ForProcess(*share, BookOf(*share).limit()));
}

void Registry::End(Session& session, Time now, Changed& changed) {
  if (std::exchange(session.ended, true)) return;
  for (Place& place : session.places) {
    Share& share = *place.share;
    const ipc::UsagePage& usage = *place.seat->usage;
    share.launches += usage.launches.load(kRelaxed);
    share.waits += usage.waits.load(kRelaxed);
    share.denied += usage.allocations_denied.load(kRelaxed);
    share.throttled_ns += ThrottledOf(usage).count();
    if (BookOf(share).Leave(place.memory)) session.ended_by_itself = true;
    share.gpu->time.Leave(std::exchange(place.time, nullptr), now, changed);
    share.copies.Leave(std::exchange(place.copies, nullptr), now, changed);
    share.gpu->link.Leave(std::exchange(place.link, nullptr), changed);
    changed.Forget(*place.seat);
    place.seat = nullptr;
  }
}

bool Registry::HoldsNothing(const Session& session) {
  return std::all_of(session.places.begin(), session.places.end(),
                     [](const Place& place) { return place.memory->granted == 0; });
}

void Registry::Reclaim(Session& session, Changed& changed) {
  session.reclaiming = true;
  for (Place& place : session.places) BookOf(*place.share).Reclaim(place.memory, changed);
}

void Registry::Free(Session* session, Time now, Changed& changed) {
  End(*session, now, changed);
  for (Place& place : session->places) BookOf(*place.share).Free(place.memory, changed);
  if (session->former != nullptr) session->former->successor = nullptr;
  if (session->successor != nullptr) session->successor->former = nullptr;
  Tenant& tenant = *session->tenant;
  --tenant.sessions;
  sessions_.remove_if([session](const Session& other) { return &other == session; });
  Sweep(tenant, now, changed);
}

bool Registry::TakeLowered() {
  bool lowered = false;
  for (const auto& [uuid, gpu] : gpus_) lowered |= std::exchange(gpu->pool.lowered, false);
  return lowered;
}

Time Registry::Look(Time now, Changed& changed) {
  Time next = kNever;
  for (const auto& [uuid, gpu] : gpus_) {
    const uint64_t granted = gpu->pool.granted;
    for (const auto& [name, share] : gpu->shares) {
      next = std::min(next, share->copies.Look(now, changed));
      if (share->quota == nullptr) continue;
      next = std::min(next, share->quota->Look(now, changed));
      share->peak = std::max(share->peak, share->quota->UsedByThoseHere());
    }
    for (const auto& [name, share] : gpu->shares) {
      if (share->tenant->children == 0 || share->quota == nullptr) continue;
      uint64_t used = 0;
      for (const MemoryBook* const book : share->family->books) used += book->UsedByThoseHere();
      share->peak = std::max(share->peak, used);
    }
    next = std::min(next, gpu->unpromised.Look(now, changed));
    // If a book has got memory back, a book that was served before it may be waiting for that: look again at once.
    if (gpu->pool.granted < granted) next = std::min(next, now);
    next = std::min(next, gpu->time.Look(now, changed));
    next = std::min(next, gpu->link.Look(now, changed));
  }
  return std::min(next, LookAtDormant(now, changed));
}

}  // namespace gpushare::broker
