// SPDX-License-Identifier: Apache-2.0
#include "broker/registry.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "broker/tenant_spec.h"
#include "spec/text.h"

namespace gpushare::broker {
namespace {

// Where the broker does not know the GPUs itself, of what processes say.
constexpr size_t kMostNamedGpus = 64, kMostUuid = 64;
constexpr uint64_t kMostMemory = uint64_t{1} << 50;

bool May(const TenantConfig& tenant, const Registry::Credentials& who) {
  if (tenant.uids.empty() && tenant.gids.empty()) return true;
  const auto in = [](const std::vector<uint32_t>& list, uint32_t id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  return in(tenant.uids, who.uid) || in(tenant.gids, who.gid);
}

// What the process goes by itself: the broker divides the device's time.
gpushare_spec ForProcess(const Registry::Share& share, uint64_t memory) {
  gpushare_spec spec = share.spec;
  spec.set &= GPUSHARE_SPEC_H2D | GPUSHARE_SPEC_D2H | GPUSHARE_SPEC_PRIORITY;
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
  return *(gpus_[info.uuid] = std::move(gpu));
}

// ---- Who

// The session that this process has lost, if any.
Registry::Session* Registry::FormerOf(const Credentials& who, const ipc::Hello& hello) {
  Session* unseen = nullptr;
  uint64_t least = 0;
  for (Session& session : sessions_) {
    const bool same = session.lost() && session.successor == nullptr &&
                      session.who.uid == who.uid && session.asked == hello.tenant;
    if (!same) continue;
    if (session.who.pid != 0) {
      const bool known = session.who.began != 0 && who.began != 0;
      if (session.who.pid == who.pid && (!known || session.who.began == who.began)) return &session;
      continue;
    }
    if (session.program != hello.program) continue;
    // Of those that look alike the one that had least: what is still held for the others is enough in any order.
    uint64_t granted = 0;
    for (const Place& place : session.places) granted += place.memory->granted;
    if (unseen == nullptr || granted < least) {
      unseen = &session;
      least = granted;
    }
  }
  return unseen;
}

absl::StatusOr<Registry::Tenant*> Registry::TenantFor(const Credentials& who,
                                                      const ipc::Hello& hello,
                                                      const Session* former) {
  if (former != nullptr) {
    Tenant& tenant = *former->tenant;
    if (tenant.listed ? May(tenant.config, who) : tenant.owner == who.uid) return &tenant;
  }
  if (draining_) return absl::UnavailableError("the broker is being drained: nobody registers");
  std::string name = hello.tenant;
  bool numbered = false;
  if (name.empty()) {
    int found = 0;
    for (const auto& [known, tenant] : tenants_) {
      const bool named = !tenant->config.uids.empty() || !tenant->config.gids.empty();
      if (!tenant->listed || !named || !May(tenant->config, who)) continue;
      name = known;
      ++found;
    }
    if (found > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("user ", who.uid, " may be any of ", found,
                       " tenants of the configuration: say which with GPUSHARE_TENANT"));
    }
    if (found == 0 && !config_.unlisted) {
      return absl::PermissionDeniedError(absl::StrCat(
          "no tenant of the configuration is user ", who.uid,
          "'s: say which with GPUSHARE_TENANT, or add one, or allow 'unlisted' tenants"));
    }
    // Somebody may have taken the name of this session already.
    for (uint64_t number = next_session_;
         found == 0 && (name.empty() || tenants_.count(name) != 0);) {
      name = absl::StrCat("process-", number++);
      numbered = true;
    }
  }
  if (const auto at = tenants_.find(name); at != tenants_.end()) {
    Tenant& tenant = *at->second;
    if (tenant.listed ? !May(tenant.config, who) : tenant.owner != who.uid) {
      return absl::PermissionDeniedError(
          absl::StrCat("user ", who.uid, " may not register as tenant '", name, "'"));
    }
    if (tenant.draining) {
      return absl::UnavailableError(absl::StrCat("tenant '", name, "' is being drained"));
    }
    if (!tenant.listed && tenant.sessions == 0) {
      // As if it made the tenant, but for what that owes and was ordered.
      GPUSHARE_RETURN_IF_ERROR(MayBeOwn(hello.spec));
      tenant.config.spec = hello.spec;
    }
    return &tenant;
  }
  if (!config_.unlisted) {
    return absl::NotFoundError(absl::StrCat(
        "there is no tenant '", name, "': add it to the configuration, or allow 'unlisted' ones"));
  }
  GPUSHARE_RETURN_IF_ERROR(spec::ValidateTenantName(name));
  GPUSHARE_RETURN_IF_ERROR(MayBeOwn(hello.spec));
  auto made = std::make_unique<Tenant>();
  made->name = name;
  made->config.name = name;
  made->config.spec = hello.spec;
  made->owner = who.uid;
  made->numbered = numbered;
  return (tenants_[name] = std::move(made)).get();
}

absl::Status Registry::MayBeOwn(const std::string& spec) const {
  GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec parsed, spec::ParseSpec(spec));
  return CheckTenantSpec(parsed);
}

absl::StatusOr<Registry::Session*> Registry::Register(const Credentials& who,
                                                      const ipc::Hello& hello) {
  Session* const former = FormerOf(who, hello);
  GPUSHARE_ASSIGN_OR_RETURN(Tenant* const tenant, TenantFor(who, hello, former));
  Session& session = sessions_.emplace_back();
  if (former != nullptr && former->tenant == tenant) {
    session.former = former;
    former->successor = &session;
  }
  session.id = next_session_++;
  session.who = who;
  session.program = hello.program;
  session.asked = hello.tenant;
  session.tenant = tenant;
  if (tenant->sessions++ == 0 && !tenant->listed) dormant_.remove(tenant);
  ++sessions_ever_;
  return &session;
}

// ---- Shares

absl::StatusOr<Registry::Gpu*> Registry::FindGpu(const ipc::OpenGpu& open, Time now,
                                                 Changed& changed) {
  if (const auto at = gpus_.find(open.uuid); at != gpus_.end()) return at->second.get();
  if (knows_gpus_) {
    std::string there;
    for (const auto& [uuid, gpu] : gpus_) absl::StrAppend(&there, " ", uuid);
    return absl::NotFoundError(
        absl::StrCat("the broker has no GPU ", open.uuid, "; it has", there));
  }
  if (gpus_.size() >= kMostNamedGpus) ForgetUnusedGpus(now, changed);
  if (open.uuid.empty() || open.uuid.size() > kMostUuid || open.memory == 0 ||
      open.memory > kMostMemory || gpus_.size() >= kMostNamedGpus) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GPU: a UUID of at most ", kMostUuid, " bytes and a memory above 0, up to ",
        spec::ReadableBytes(kMostMemory), ", are wanted, of ", kMostNamedGpus, " at most"));
  }
  Gpu& gpu = AddGpu(
      {.uuid = open.uuid, .memory = open.memory, .sm_count = static_cast<int>(open.sm_count)});
  gpu.SetCapacity(CapacityOf(gpu.info, config_), changed);
  return &gpu;
}

absl::Status Registry::Admit(const Gpu& gpu, const std::string& tenant, const spec::Limits& limits,
                             const Share* but) const {
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
  if (guaranteed + limits.compute.guarantee > 1 + kRounding) {
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
  // Who is not listed says himself what he wants.
  TenantConfig config = tenant.config;
  if (own != nullptr && !tenant.listed) config.spec = *own;
  if (at != gpu.shares.end()) {
    Share& there = *at->second;
    gpushare_spec spec = there.spec;
    if (!there.set) {
      GPUSHARE_ASSIGN_OR_RETURN(spec, SpecOn(config, gpu.info.uuid));
    }
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits,
                              spec::ResolveSpec(spec, GPUSHARE_PRIORITY_UNSET, gpu.capacity));
    GPUSHARE_RETURN_IF_ERROR(Admit(gpu, tenant.name, limits, &there));
    Assign({&there, spec, limits}, now, changed);
    return &there;
  }
  auto share = std::make_unique<Share>();
  share->tenant = &tenant;
  share->gpu = &gpu;
  GPUSHARE_ASSIGN_OR_RETURN(share->spec, SpecOn(config, gpu.info.uuid));
  GPUSHARE_ASSIGN_OR_RETURN(share->limits,
                            spec::ResolveSpec(share->spec, GPUSHARE_PRIORITY_UNSET, gpu.capacity));
  GPUSHARE_RETURN_IF_ERROR(Admit(gpu, tenant.name, share->limits, nullptr));
  if (share->limits.memory) {
    share->quota = std::make_unique<MemoryBook>(*share->limits.memory, &gpu.pool);
    gpu.promised += *share->limits.memory;
  }
  gpu.guaranteed += share->limits.compute.guarantee;
  gpu.unpromised.SetLimit(gpu.capacity - std::min(gpu.promised, gpu.capacity), changed);
  share->time = gpu.time.AddTenant(share->limits.compute, now);
  gpu.time.Suspend(share->time, tenant.suspended, now, changed);
  share->copies.SetLimits(share->limits, now, changed);
  return (gpu.shares[tenant.name] = std::move(share)).get();
}

// Whether a quota may come or go.
absl::Status Registry::CheckQuota(const Share& share, const spec::Limits& limits) const {
  if (share.dormant) return absl::OkStatus();
  const bool used =
      share.quota != nullptr ? !share.quota->members().empty() : share.tenant->sessions > 0;
  if (limits.memory.has_value() == share.limits.memory.has_value() || !used) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "tenant '", share.tenant->name, "' on GPU ", share.gpu->info.uuid,
      ": a quota of memory cannot come or go while its processes run; end them first"));
}

void Registry::Assign(const Checked& change, Time now, Changed& changed) {
  Share& share = *change.share;
  spec::Limits limits = change.limits;
  if (change.dormant) {
    limits.memory.reset();
    limits.compute.guarantee = 0;
  }
  Gpu& gpu = *share.gpu;
  if (limits.memory.has_value() != share.limits.memory.has_value()) {
    share.quota = limits.memory ? std::make_unique<MemoryBook>(*limits.memory, &gpu.pool) : nullptr;
  }
  gpu.promised += limits.memory.value_or(0) - share.limits.memory.value_or(0);
  gpu.guaranteed += limits.compute.guarantee - share.limits.compute.guarantee;
  share.spec = change.spec;
  share.limits = limits;
  share.dormant = change.dormant;
  if (share.quota != nullptr) share.quota->SetLimit(*limits.memory, changed);
  gpu.unpromised.SetLimit(gpu.capacity - std::min(gpu.promised, gpu.capacity), changed);
  gpu.time.Update(share.time, limits.compute, now, changed);
  share.copies.SetLimits(limits, now, changed);
}

void Registry::Remove(Share& share, Time now, Changed& changed) {
  Gpu& gpu = *share.gpu;
  gpu.promised -= share.limits.memory.value_or(0);
  gpu.guaranteed = gpu.shares.size() == 1 ? 0 : gpu.guaranteed - share.limits.compute.guarantee;
  gpu.unpromised.SetLimit(gpu.capacity - std::min(gpu.promised, gpu.capacity), changed);
  gpu.time.RemoveTenant(share.time, now);
  const std::string name = share.tenant->name;
  gpu.shares.erase(name);
}

// ---- Processes

absl::StatusOr<std::string> Registry::Open(Session& session, const ipc::OpenGpu& open, Seat& seat,
                                           Time now, Changed& changed, const std::string* own) {
  GPUSHARE_ASSIGN_OR_RETURN(Gpu* const gpu, FindGpu(open, now, changed));
  Place* held = nullptr;  // what its process had here before
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
    changed.Forget(*place.seat);
    place.seat = nullptr;
  }
}

bool Registry::HoldsNothing(const Session& session) {
  return std::all_of(session.places.begin(), session.places.end(),
                     [](const Place& place) { return place.memory->granted == 0; });
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
      uint64_t used = 0;
      for (const MemoryBook::Member& member : share->quota->members()) {
        if (!member.gone)
          used += MemoryBook::Used(member);  // of the others only what they were granted is known
      }
      share->peak = std::max(share->peak, used);
    }
    next = std::min(next, gpu->unpromised.Look(now, changed));
    // What one book has got back another may wait for, which was looked at before.
    if (gpu->pool.granted < granted) next = std::min(next, now);
    next = std::min(next, gpu->time.Look(now, changed));
  }
  return std::min(next, LookAtDormant(now, changed));
}

// ---- The operator

absl::StatusOr<std::string> Registry::Set(const std::string& tenant, const std::string& gpu,
                                          const std::string& change, Time now, Changed& changed) {
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end()) return absl::NotFoundError(absl::StrCat("no tenant '", tenant, "'"));
  GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec keys, spec::ParseSpec(change));
  // On all or on none.
  std::vector<Checked> changes;
  std::set<std::string> ended;
  for (const auto& [uuid, there] : gpus_) {
    if (!gpu.empty() && gpu != uuid) continue;
    const auto share = there->shares.find(tenant);
    if (share == there->shares.end()) continue;
    const gpushare_spec merged = spec::MergeSpec(share->second->spec, keys);
    GPUSHARE_RETURN_IF_ERROR(CheckTenantSpec(merged));
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits limits,
                              spec::ResolveSpec(merged, GPUSHARE_PRIORITY_UNSET, there->capacity));
    GPUSHARE_RETURN_IF_ERROR(Admit(*there, tenant, limits, share->second.get()));
    GPUSHARE_RETURN_IF_ERROR(CheckQuota(*share->second, limits));
    changes.push_back({share->second.get(), merged, limits, share->second->dormant});
    ended.insert(spec::EndedBy(share->second->spec, keys));
  }
  if (changes.empty()) {
    return absl::NotFoundError(absl::StrCat("tenant '", tenant, "' has no share of ",
                                            gpu.empty() ? "any GPU" : "GPU " + gpu));
  }
  for (const Checked& each : changes) {
    Assign(each, now, changed);
    each.share->set = true;
  }
  at->second->look_at = dormant_until_ = Time{};
  ended.erase("");
  return absl::StrJoin(ended, "; ");
}

absl::Status Registry::Suspend(const std::string& tenant, bool suspended, Time now,
                               Changed& changed) {
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end()) return absl::NotFoundError(absl::StrCat("no tenant '", tenant, "'"));
  at->second->suspended = suspended;
  at->second->look_at = dormant_until_ = Time{};
  for (const auto& [uuid, gpu] : gpus_) {
    const auto share = gpu->shares.find(tenant);
    if (share != gpu->shares.end()) gpu->time.Suspend(share->second->time, suspended, now, changed);
  }
  return absl::OkStatus();
}

absl::Status Registry::Drain(const std::string& tenant, const std::string& gpu, bool draining,
                             Changed& changed) {
  if (!tenant.empty() && !gpu.empty()) {
    return absl::InvalidArgumentError("a tenant and a GPU are named: one of them can be drained");
  }
  if (!gpu.empty()) {
    const auto at = gpus_.find(gpu);
    if (at == gpus_.end()) return absl::NotFoundError(absl::StrCat("no GPU ", gpu));
    at->second->draining = draining;
    for (Session& session : sessions_) TellOfDraining(session, changed);
    return absl::OkStatus();
  }
  if (!tenant.empty() && tenants_.find(tenant) == tenants_.end()) {
    return absl::NotFoundError(absl::StrCat("no tenant '", tenant, "'"));
  }
  if (!tenant.empty() && !draining && draining_) {
    return absl::FailedPreconditionError(
        "all tenants are being drained: that is to be undone first, without a name");
  }
  if (tenant.empty()) draining_ = draining;
  for (const auto& [name, there] : tenants_) {
    if (!tenant.empty() && name != tenant) continue;
    there->draining = draining;
    there->look_at = Time{};
  }
  dormant_until_ = Time{};
  for (Session& session : sessions_) TellOfDraining(session, changed);
  return absl::OkStatus();
}

void Registry::TellOfDraining(Session& session, Changed& changed) {
  if (session.ended) return;
  for (Place& place : session.places) {
    const bool draining = session.tenant->draining || place.share->gpu->draining;
    BookOf(*place.share).SetDraining(place.memory, draining, changed);
  }
}

}  // namespace gpushare::broker
