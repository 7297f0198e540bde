// SPDX-License-Identifier: Apache-2.0
#include "device/gpu.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/driver_pool.h"
#include "device/identity.h"
#include "device/last_error.h"
#include "device/memory_pool.h"
#include "device/runtime.h"
#include "device/scheduler.h"
#include "device/stream.h"
#include "device/surroundings.h"
#include "device/tenant.h"
#include "device/virtual_device.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

thread_local absl::Status close_report;

}  // namespace

Gpu::Gpu(std::shared_ptr<Runtime> runtime, int ordinal)
    : runtime_(std::move(runtime)),
      driver_(runtime_->driver()),
      ordinal_(ordinal),
      site_{.driver = driver_, .id = ContextScope::NewSite()} {}

absl::StatusOr<std::shared_ptr<Gpu>> Gpu::Open(std::shared_ptr<Runtime> runtime, int ordinal,
                                               const gpushare_scheduler_options* scheduler) {
  std::shared_ptr<Gpu> gpu(new Gpu(std::move(runtime), ordinal));
  GPUSHARE_RETURN_IF_ERROR(gpu->Start(scheduler));
  return gpu;
}

absl::Status Gpu::Start(const gpushare_scheduler_options* scheduler) {
  GPUSHARE_ASSIGN_OR_RETURN(info_, driver_.Describe(ordinal_));
  gate::EngineOptions options;
  options.sm_count = std::max(info_.sm_count, 1);
  options.recorder = recorder_;
  if (scheduler != nullptr) GPUSHARE_RETURN_IF_ERROR(ApplyScheduler(*scheduler, &options));
  scheduler_ = SchedulerInForce(options);
  engine_options_ = options;  // of partitions as well
  GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<client::GpuSession> session,
                            runtime_->SessionOn(ordinal_, info_));
  if (session != nullptr) session->Enter();  // after the one that was here before
  session_ = std::move(session);
  options.supply = session_;
  options.copy_supply = session_;
  partitions_ = std::make_unique<Partitions>(driver_, ordinal_, options.sm_count);

  // Limits that others have set on this process bound what can be promised.
  uint64_t memory = info_.total_memory;
  const Surroundings around = LookAround(ordinal_, info_.pci_bus_id);
  for (const uint64_t limit : {around.mps_memory_limit, around.dmem_limit}) {
    if (limit != 0) memory = std::min(memory, limit);
  }
  GPUSHARE_ASSIGN_OR_RETURN(const uint64_t reserve, runtime_->ReserveOf(ordinal_, memory));
  capacity_ = memory - reserve;
  GPUSHARE_RETURN_IF_ERROR(StartBooks());
  GPUSHARE_ASSIGN_OR_RETURN(site_.context, driver_.RetainPrimaryContext(ordinal_));
  const ContextScope current(*this);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  // The engine keeps the driver, not more than calls it.
  GPUSHARE_ASSIGN_OR_RETURN(
      engine_, gate::Engine::Create(const_cast<driver::Driver&>(driver_), site_.context, options));
  if (session_ != nullptr) {
    session_->SetFigures([engine = engine_.get()] {
      const gate::Engine::Totals all = engine->totals();
      return client::GpuSession::Figures{
          .launches = all.launches, .waits = all.waits, .throttled = all.throttled};
    });
    session_->SetOnTime([engine = engine_.get()] { engine->Supplied(); });
  }
  return absl::OkStatus();
}

absl::Status Gpu::StartBooks() {
  GPUSHARE_ASSIGN_OR_RETURN(unpromised_, quota::Account::Create(capacity_, std::nullopt, loans_));
  loans_.Join(*unpromised_);
  {
    base::MutexLock lock(&mutex_);
    books_.emplace(capacity_);
    limit_ = capacity_;
  }
  if (session_ == nullptr) return absl::OkStatus();
  unpromised_->SetSource(
      std::shared_ptr<quota::Source>(std::shared_ptr<void>(), static_cast<quota::Source*>(this)));
  session_->SetHolder(this);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<gate::Engine>> Gpu::NewEngine(int sm_count) {
  if (session_ != nullptr) {
    return absl::UnimplementedError(
        "isolation 'green': where a broker has the GPU's time, a process cannot divide its SMs; "
        "leave 'isolation' out, or use 'context'");
  }
  gate::EngineOptions options = engine_options_;
  options.sm_count = sm_count;
  GPUSHARE_ASSIGN_OR_RETURN(
      std::shared_ptr<gate::Engine> made,
      gate::Engine::Create(const_cast<driver::Driver&>(driver_), site_.context, options));
  std::shared_ptr<gate::Watchdog> watchdog;
  {
    base::MutexLock lock(&mutex_);
    std::erase_if(engines_, [](const auto& engine) { return engine.expired(); });
    engines_.push_back(made);
    watchdog = watchdog_;
  }
  if (watchdog != nullptr) static_cast<void>(made->Watch(watchdog));
  return made;
}

std::vector<std::shared_ptr<gate::Engine>> Gpu::Engines() const {
  std::vector<std::shared_ptr<gate::Engine>> engines;
  base::MutexLock lock(&mutex_);
  for (const auto& weak : engines_) {
    if (std::shared_ptr<gate::Engine> engine = weak.lock()) engines.push_back(std::move(engine));
  }
  return engines;
}

absl::Status Gpu::health() const {
  GPUSHARE_RETURN_IF_ERROR(engine_->health());
  for (const auto& engine : Engines()) GPUSHARE_RETURN_IF_ERROR(engine->health());
  return absl::OkStatus();
}

bool Gpu::Watch(const std::shared_ptr<gate::Watchdog>& watchdog) {
  if (!engine_->Watch(watchdog)) return false;
  {
    base::MutexLock lock(&mutex_);
    watchdog_ = watchdog;
  }
  for (const auto& engine : Engines()) {
    static_cast<void>(engine->Watch(nullptr));
    static_cast<void>(engine->Watch(watchdog));
  }
  return true;
}

absl::Status Gpu::TakeCloseReport() { return std::exchange(close_report, absl::OkStatus()); }

Gpu::~Gpu() {
  if (session_ != nullptr) {
    session_->SetOnTime(nullptr);
    session_->SetFigures(nullptr);
  }
  const bool told = engine_ != nullptr;
  engine_.reset();
  if (session_ != nullptr && told) session_->EngineEnds();
  bool abandoned = false;
  uint64_t bytes_left = 0;
  if (context() != nullptr) {
    const ContextScope current(*this);
    // To free memory and to give up the context may wait in the driver for work that never ends.
    const std::string running = unfinished_.Await(
        clock(), clock().Now() + Nanos(static_cast<int64_t>(GPUSHARE_CLOSE_GRACE_NS)));
    abandoned = !running.empty();
    std::set<std::shared_ptr<MemoryPool>> pools;
    {
      base::MutexLock lock(&mutex_);
      for (const auto& [base, segment] : segments_) pools.insert(segment.pool);
    }
    for (const std::shared_ptr<MemoryPool>& pool : pools) {
      bytes_left += pool->Abandon(/*give=*/!abandoned);
    }
    std::vector<VirtualDevice*> left;
    {
      base::MutexLock lock(&mutex_);
      left.assign(retired_.begin(), retired_.end());
    }
    for (VirtualDevice* device : left) {
      for (const auto& [pointer, allocation] : pointers_.TakeAllOf(&device->account())) {
        if (abandoned) {
          if (allocation.kind != quota::Kind::kPool) bytes_left += allocation.bytes;
        } else {
          static_cast<void>(driver_.MemFree(pointer));
        }
        if (allocation.kind == quota::Kind::kPool) {
          device->Unhold();  // the pool is charged, below
        } else {
          device->Abandon(allocation.bytes);
        }
      }
    }
    for (const std::shared_ptr<DriverPool>& pool : DriverPools()) {
      bytes_left += pool->Abandon(/*give=*/!abandoned);
    }
    if (abandoned) {
      close_report = absl::DeadlineExceededError(
          absl::StrCat("GPU ", ordinal_, " is closed, and work of ", running, " still runs after ",
                       GPUSHARE_CLOSE_GRACE_NS / 1'000'000'000, " s; its context and ",
                       spec::ReadableBytes(bytes_left),
                       " that nobody freed are left to the driver until the process ends"));
    }
  }
  if (session_ != nullptr) {
    session_->SetHolder(nullptr, bytes_left);
    session_->Leave();
  }
  for (std::atomic<Chunk*>& chunk : slots_) delete[] chunk.load();
  ContextScope::Forget(site_);
  if (context() != nullptr && !abandoned) {
    static_cast<void>(driver_.ReleasePrimaryContext(ordinal_));
  }
}

absl::Status Gpu::CheckSame(const gpushare_scheduler_options& options) const {
  gate::EngineOptions wanted;
  GPUSHARE_RETURN_IF_ERROR(ApplyScheduler(options, &wanted));
  if (SameScheduler(SchedulerInForce(wanted), scheduler_)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "GPU ", ordinal_, " is open with other scheduler options; they count at the first opening"));
}

driver::Result Gpu::FindFootprint(driver::Function function, const driver::LaunchShape& shape,
                                  uint64_t key, float* footprint) {
  if (footprints_.Find(key, footprint)) return driver::Result::kSuccess;
  const uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  if (threads == 0 || threads > 1u << 16) return driver::Result::kInvalidValue;
  int blocks = 0;
  const driver::Result result =
      driver_.BlocksPerSm(&blocks, function, static_cast<int>(threads), shape.shared_bytes);
  if (result != driver::Result::kSuccess) return result;
  *footprint = gate::Footprint(shape, blocks, info_.sm_count);
  footprints_.Put(key, *footprint);
  return driver::Result::kSuccess;
}

// ---- Whose work is it? ----

absl::StatusOr<std::shared_ptr<VirtualDevice>> Gpu::Resolve(driver::Stream stream) {
  if (stream != nullptr) {
    if (const std::shared_ptr<Stream> bound = BoundStream(stream)) return bound->shared_device();
  }
  if (const Scope* scope = CurrentScope()) {
    if (std::shared_ptr<VirtualDevice> device = scope->tenant->DeviceOn(this)) return device;
    if (scope->tenant != runtime_->default_tenant()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the calling thread works for tenant ", Quoted(scope->tenant->name()),
                       ", which has no virtual device on GPU ", ordinal_));
    }
  }
  driver::Context context = nullptr;
  if (driver_.CurrentContext(&context) == driver::Result::kSuccess && context != nullptr) {
    base::MutexLock lock(&mutex_);
    const auto at = contexts_.find(context);
    if (at != contexts_.end()) {
      if (std::shared_ptr<VirtualDevice> device = at->second.lock()) return device;
    }
  }
  return runtime_->DefaultDevice(*this);
}

absl::StatusOr<uint64_t> Gpu::FindPointer(driver::DevicePtr pointer,
                                          std::shared_ptr<VirtualDevice>* owner) const {
  quota::Allocation allocation;
  if (!pointers_.Find(pointer, &allocation)) {
    const std::shared_ptr<MemoryPool> pool = PoolAt(pointer);
    const uint64_t bytes = pool == nullptr ? 0 : pool->SizeOf(pointer);
    if (bytes == 0) {
      return absl::NotFoundError("gpushare knows no allocation that starts at this pointer");
    }
    base::MutexLock lock(&mutex_);
    const Segment* const segment = SegmentAt(pointer);
    if (segment != nullptr && segment->pool == pool) {
      *owner = pool->device().weak_from_this().lock();
    }
    return bytes;
  }
  // Under the lock whoever is in a slot exists; it may be another one by now.
  base::MutexLock lock(&mutex_);
  VirtualDevice* const device = InSlot(allocation.device);
  if (device != nullptr && &device->account() == allocation.account) {
    *owner = device->weak_from_this().lock();
  }
  return allocation.bytes;
}

void Gpu::BindContext(driver::Context context, const std::shared_ptr<VirtualDevice>& device) {
  base::MutexLock lock(&mutex_);
  if (device == nullptr) {
    contexts_.erase(context);
  } else {
    contexts_[context] = device;
  }
}

absl::Status Gpu::BindStream(driver::Stream native, const std::weak_ptr<Stream>& stream) {
  base::MutexLock lock(&mutex_);
  if (!streams_.emplace(native, stream).second) {
    return absl::AlreadyExistsError("the stream is bound to a virtual device already");
  }
  return absl::OkStatus();
}

void Gpu::UnbindStream(driver::Stream native) {
  base::MutexLock lock(&mutex_);
  streams_.erase(native);
}

// The last to let go of it does so without the lock.
std::shared_ptr<Stream> Gpu::BoundStream(driver::Stream native) const {
  base::MutexLock lock(&mutex_);
  const auto at = streams_.find(native);
  return at == streams_.end() ? nullptr : at->second.lock();
}

void Gpu::AddSegment(driver::DevicePtr base, uint64_t bytes, std::shared_ptr<MemoryPool> pool) {
  base::MutexLock lock(&mutex_);
  segments_[base] = {bytes, std::move(pool)};
}

void Gpu::RemoveSegment(driver::DevicePtr base) {
  std::shared_ptr<MemoryPool> last;  // destroyed without the lock
  base::MutexLock lock(&mutex_);
  const auto at = segments_.find(base);
  if (at == segments_.end()) return;
  last = std::move(at->second.pool);
  segments_.erase(at);
}

const Gpu::Segment* Gpu::SegmentAt(driver::DevicePtr pointer) const {
  auto at = segments_.upper_bound(pointer);
  if (at == segments_.begin()) return nullptr;
  --at;
  return pointer - at->first < at->second.bytes ? &at->second : nullptr;
}

std::shared_ptr<MemoryPool> Gpu::PoolAt(driver::DevicePtr pointer) const {
  base::MutexLock lock(&mutex_);
  const Segment* const segment = SegmentAt(pointer);
  return segment == nullptr ? nullptr : segment->pool;
}

void Gpu::AddDriverPool(const std::shared_ptr<DriverPool>& pool) {
  base::MutexLock lock(&mutex_);
  driver_pools_[pool.get()] = pool;
}

void Gpu::RemoveDriverPool(const DriverPool* pool) {
  std::shared_ptr<DriverPool> last;  // destroyed without the lock
  base::MutexLock lock(&mutex_);
  const auto at = driver_pools_.find(pool);
  if (at == driver_pools_.end()) return;
  last = std::move(at->second);
  driver_pools_.erase(at);
}

std::vector<std::shared_ptr<DriverPool>> Gpu::DriverPools() const {
  std::vector<std::shared_ptr<DriverPool>> pools;
  base::MutexLock lock(&mutex_);
  for (const auto& [at, pool] : driver_pools_) pools.push_back(pool);
  return pools;
}

// Frees come through their streams without a word, also after the virtual device is gone.
void Gpu::TrimUnusedPools() {
  for (const std::shared_ptr<DriverPool>& pool : DriverPools()) pool->TrimIfUnused();
}

bool Gpu::PutBack(driver::DevicePtr pointer, const quota::Allocation& allocation) {
  driver::DevicePtr base = 0;
  size_t bytes = 0;
  const driver::Result found = driver_.AddressRange(&base, &bytes, pointer);
  if (found == driver::Result::kInvalidValue || found == driver::Result::kNotFound) return false;
  quota::Allocation newer;
  if (pointers_.Insert(pointer, allocation, &newer) !=
      quota::PointerTable::InsertResult::kReplaced) {
    return true;
  }
  // The address is somebody's again already.
  static_cast<void>(pointers_.Insert(pointer, newer));
  return false;
}

VirtualDevice* Gpu::EnterLease(uint64_t thread, VirtualDevice* device) {
  base::MutexLock lock(&mutex_);
  const auto [at, added] = leases_.emplace(thread, device);
  return added ? nullptr : at->second;
}

void Gpu::LeaveLease(uint64_t thread) {
  base::MutexLock lock(&mutex_);
  leases_.erase(thread);
}

VirtualDevice* Gpu::LeaseOf(uint64_t thread) const {
  base::MutexLock lock(&mutex_);
  const auto at = leases_.find(thread);
  return at == leases_.end() ? nullptr : at->second;
}

// ---- Admission ----

// Beyond what is promised now. Only devices that hold more than was promised to them are looked at, not all there
// are. What is borrowed is charged to who lends it.
uint64_t Gpu::HeldByQuotas() {
  uint64_t held = 0;
  for (const VirtualDevice* device : retired_) {
    const quota::Account& account = device->account();
    if (device->has_quota()) held += loans_.WithoutLoan(account);
  }
  // Of a quota that was shrunk below use, what is above it.
  for (auto at = over_quota_.begin(); at != over_quota_.end();) {
    const uint64_t over = loans_.Over((*at)->account());
    if (over == 0) {  // nothing is granted to it that would bring it back here
      at = over_quota_.erase(at);
      continue;
    }
    held += over;
    ++at;
  }
  return held;
}

uint64_t Gpu::HeldWithoutQuota() { return unpromised_->own() + HeldByQuotas(); }

void Gpu::UpdateUnpromised() {
  const uint64_t others = books_->memory() + HeldByQuotas();
  if (session_ != nullptr) books_->SetCapacity(capacity());
  unpromised_->SetLimit(quota::Minus(limit_, others));
  apart_.store(others);
}

absl::StatusOr<Gpu::Seat> Gpu::Admit(VirtualDevice* device, const spec::Limits& limits) {
  TrimUnusedPools();
  const Tenant& tenant = device->tenant();
  const Admission::Promise promise{limits.memory, limits.compute.guarantee};
  // What nobody is promised others take meanwhile, without the lock.
  for (;;) {
    {
      base::MutexLock lock(&mutex_);
      if (seated_.count(&tenant) != 0) {
        return absl::AlreadyExistsError(absl::StrCat("tenant ", Quoted(tenant.name()),
                                                     " has a virtual device on GPU ", ordinal_,
                                                     " already; resize that one"));
      }
      UpdateUnpromised();
      GPUSHARE_RETURN_IF_ERROR(books_->Check(tenant.name(), 0, promise, HeldWithoutQuota()));
      if (!device->has_quota() || loans_.Join(device->account(), *unpromised_)) {
        return TakeSeat(device, promise);
      }
    }
    GPUSHARE_RETURN_IF_ERROR(AskFor(tenant, *promise.memory));
  }
}

absl::StatusOr<Gpu::Seat> Gpu::TakeSeat(VirtualDevice* device, const Admission::Promise& promise) {
  Seat seat;
  if (!free_slots_.empty()) {
    seat.slot = free_slots_.back();
    free_slots_.pop_back();
  } else {
    if (slots_used_ >> kChunkBits >= slots_.size()) {
      if (device->has_quota()) loans_.Retire(device->account(), *unpromised_);
      UpdateUnpromised();
      return absl::ResourceExhaustedError("there are too many virtual devices on this GPU");
    }
    seat.slot = slots_used_;
    std::atomic<Chunk*>& chunk = slots_[seat.slot >> kChunkBits];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      chunk.store(new Chunk[size_t{1} << kChunkBits]{}, std::memory_order_release);
    }
    ++slots_used_;
  }
  slots_[seat.slot >> kChunkBits].load(std::memory_order_relaxed)[seat.slot & kChunkMask].store(
      device, std::memory_order_release);
  seat.promise = books_->Add(promise);
  seated_[&device->tenant()] = device;
  if (session_ != nullptr) UpdateUnpromised();
  return seat;
}

absl::Status Gpu::Change(VirtualDevice* device, const spec::Limits& limits) {
  TrimUnusedPools();
  const Admission::Promise promise{limits.memory, limits.compute.guarantee};
  quota::Account& account = device->account();
  const uint64_t most = limits.memory_cap.value_or(limits.memory.value_or(0));
  for (;;) {
    {
      base::MutexLock lock(&mutex_);
      UpdateUnpromised();
      // What it holds above its old quota is about to be covered by the new one.
      uint64_t held = HeldWithoutQuota();
      if (device->has_quota()) held -= std::min(held, loans_.Over(account));
      GPUSHARE_RETURN_IF_ERROR(
          books_->Check(device->tenant().name(), device->seat_.promise, promise, held));
      if (!limits.memory.has_value() ||
          loans_.SetLimits(account, *limits.memory, most, *unpromised_)) {
        books_->Replace(device->seat_.promise, promise);
        if (limits.memory.has_value() && loans_.Over(account) != 0) over_quota_.insert(device);
        if (session_ != nullptr) UpdateUnpromised();
        return absl::OkStatus();
      }
    }
    GPUSHARE_RETURN_IF_ERROR(
        AskFor(device->tenant(), quota::Minus(*limits.memory, account.guarantee())));
  }
}

// What the quotas leave of the limit must have room for it.
absl::Status Gpu::AskFor(const Tenant& tenant, uint64_t bytes) {
  if (session_ == nullptr || unpromised_->Grow(bytes)) return absl::OkStatus();
  const uint64_t left = Left();
  return WithDetail(absl::ResourceExhaustedError(absl::StrCat(
                        "tenant ", Quoted(tenant.name()), ": ", spec::ReadableBytes(bytes),
                        " of memory asked, and the broker has ", spec::ReadableBytes(left),
                        " left of this process's share of ", spec::ReadableBytes(capacity()),
                        " of GPU ", ordinal_,
                        ", or does not answer; ask for less ('memory'), or have the tenant's other "
                        "processes free some")),
                    {.tenant = tenant.name(),
                     .limit = "memory",
                     .asked = bytes,
                     .left = left,
                     .total = capacity()});
}

Room Gpu::room() {
  TrimUnusedPools();
  base::MutexLock lock(&mutex_);
  const uint64_t given = books_->memory() + HeldWithoutQuota();
  uint64_t left = quota::Minus(capacity(), given);
  if (session_ != nullptr) left = std::min(left, session_->Left());
  return {.memory_total = capacity(),
          .memory_left = left,
          .guarantee_left = std::max(0.0, 1 - books_->guarantees()),
          .devices = seated_.size()};
}

void Gpu::Return(VirtualDevice* device) {
  base::MutexLock lock(&mutex_);
  books_->Remove(device->seat_.promise);
  seated_.erase(&device->tenant());
  over_quota_.erase(device);
  retired_.insert(device);
  if (device->has_quota()) loans_.Retire(device->account(), *unpromised_);
  devices_.erase(device->seat_.promise);
  // Its streams are unbound already, since they keep it.
  std::erase_if(contexts_, [](const auto& entry) { return entry.second.expired(); });
  UpdateUnpromised();
}

void Gpu::Forget(VirtualDevice* device) {
  base::MutexLock lock(&mutex_);
  const uint32_t slot = device->seat_.slot;
  slots_[slot >> kChunkBits].load(std::memory_order_relaxed)[slot & kChunkMask].store(
      nullptr, std::memory_order_release);
  retired_.erase(device);
  if (&device->account() != unpromised_.get()) denied_before_ += device->account().Usage().denied;
  free_slots_.push_back(slot);
  UpdateUnpromised();
}

void Gpu::AddDevice(const std::shared_ptr<VirtualDevice>& device) {
  base::MutexLock lock(&mutex_);
  devices_[device->seat_.promise] = device;
}

std::vector<std::shared_ptr<VirtualDevice>> Gpu::Devices() const {
  std::vector<std::shared_ptr<VirtualDevice>> devices;
  base::MutexLock lock(&mutex_);
  for (const auto& [promise, weak] : devices_) {
    if (std::shared_ptr<VirtualDevice> device = weak.lock()) devices.push_back(std::move(device));
  }
  return devices;
}

uint64_t Gpu::PromisedMemory() const {
  base::MutexLock lock(&mutex_);
  return books_->memory();
}

double Gpu::PromisedGuarantees() const {
  base::MutexLock lock(&mutex_);
  return books_->guarantees();
}

// ---- Memory from a broker ----

uint64_t Gpu::capacity() const {
  return session_ == nullptr ? capacity_ : std::min(capacity_, session_->Limit());
}

bool Gpu::GetRoom(quota::Account& account, uint64_t bytes, Time deadline) {
  return session_->GetRoom(account, bytes, deadline);
}

uint64_t Gpu::Limit() const { return quota::Minus(capacity(), apart_.load()); }

uint64_t Gpu::Left() const { return std::min(Limit(), session_->Left()); }

// It grows before apart_ does, and shrinks after; whoever asks has lowered the limit before, with the lock.
uint64_t Gpu::Charged() const { return apart_.load() + unpromised_->charged(); }

void Gpu::SetLimit(uint64_t limit) {
  base::MutexLock lock(&mutex_);
  limit_ = std::min(limit, capacity_);
  UpdateUnpromised();
}

quota::Holder::Figures Gpu::figures() const {
  quota::Holder::Figures all{
      .charged = Charged(), .peak = 0, .denied = unpromised_->Usage().denied};
  uint64_t most = std::max(most_charged_.load(), unpromised_->Usage().peak);
  most = std::max(most, all.charged);
  most_charged_.store(most);
  all.peak = most;
  base::MutexLock lock(&mutex_);
  all.denied += denied_before_;
  const auto count = [&](const VirtualDevice* device) {
    if (&device->account() != unpromised_.get()) all.denied += device->account().Usage().denied;
  };
  for (const auto& [tenant, device] : seated_) count(device);
  for (const VirtualDevice* device : retired_) count(device);
  return all;
}

// ---- Memory of several tenants ----

void Gpu::Recall(const VirtualDevice& owner, absl::FunctionRef<uint64_t()> lacks, bool ask) {
  std::vector<std::shared_ptr<VirtualDevice>> borrowers = Devices();
  std::erase_if(borrowers, [&](const std::shared_ptr<VirtualDevice>& device) {
    return device.get() == &owner || device->account().loan() == 0;
  });
  std::stable_sort(borrowers.begin(), borrowers.end(), [](const auto& a, const auto& b) {
    if (a->band() != b->band()) return a->band() > b->band();  // the low one first
    return a->account().loan() > b->account().loan();
  });
  const auto wanted_of = [&](const VirtualDevice& device) {
    return std::min(device.account().loan(), lacks());
  };
  for (const std::shared_ptr<VirtualDevice>& device : borrowers) {
    if (const uint64_t wanted = wanted_of(*device)) device->TrimPools(wanted);
  }
  if (!ask) return;
  constexpr int kMostTimes = 16;
  for (const std::shared_ptr<VirtualDevice>& device : borrowers) {
    for (int times = 0; times < kMostTimes; ++times) {
      const uint64_t wanted = wanted_of(*device);
      if (wanted == 0 || !device->AskBack(wanted)) break;
      device->TrimPools(wanted);  // where it keeps what was freed
    }
  }
}

void Gpu::TrimUnpromised(const VirtualDevice& but, uint64_t bytes) {
  TrimUnusedPools();
  for (const std::shared_ptr<VirtualDevice>& device : Devices()) {
    if (device.get() == &but || device->has_quota()) continue;
    const uint64_t room = unpromised_->Room();
    if (room >= bytes) return;
    device->TrimPools(bytes - room);
  }
}

}  // namespace gpushare::device
