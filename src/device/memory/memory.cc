// SPDX-License-Identifier: Apache-2.0
// The memory of a virtual device: what it takes from the driver is charged to its account, and credited when
// it is given back, whoever does.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock_lock.h"
#include "base/status_macros.h"
#include "base/status_payloads.h"
#include "books/books.h"
#include "device/abi/last_error.h"
#include "device/memory/driver_pool.h"
#include "device/memory/memory_pool.h"
#include "device/memory/reclaiming.h"
#include "device/memory/swappable_memory.h"
#include "device/process/runtime.h"
#include "device/process/runtimes.h"
#include "device/share/virtual_device.h"
#include "device/stream/stream.h"
#include "driver/relaxed_capture.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

// How often who waits for memory asks what has come free without a word: through streams, or from others who had
// borrowed it.
constexpr Nanos kPoolLook = Millis(1);

}  // namespace

void VirtualDevice::Memory(uint64_t* free_bytes, uint64_t* total_bytes) const {
  if (const quota::Source* source = account_->source().get()) {
    *total_bytes = source->Limit();
    *free_bytes = source->Left();
    return;
  }
  const quota::Account* parent = account_->parent();
  if (raw_parent_ != nullptr) {
    *total_bytes = std::min(account_->limit(), parent->limit());
    *free_bytes = std::min(account_->Left(), parent->Left());
    return;
  }
  *total_bytes = parent == nullptr ? account_->limit() : parent->limit();
  *free_bytes = parent == nullptr ? account_->Left() : parent->Room();
}

uint64_t VirtualDevice::ReclaimingMemory() const {
  const quota::Source* const source = account_->source().get();
  return source == nullptr ? 0 : source->Reclaiming();
}

namespace {

absl::Status NoBytes() {
  return absl::InvalidArgumentError("allocation: 0 bytes asked, 1 or more allowed");
}

// Two sizes of which the first is more than the second, in such digits that one sees it.
std::string MoreThan(uint64_t more, uint64_t less) {
  const std::string text = spec::ReadableBytes(more);
  if (more <= less) return text;  // others freed meanwhile
  // One digit after the point, of 1024 units: closer than that they may look the same.
  return more - less > more / 1024 ? text : absl::StrCat(text, " (", more - less, " B more)");
}

}  // namespace

absl::Status VirtualDevice::OverQuotaOfFamily(uint64_t bytes, uint64_t left) const {
  const quota::Account& parents = raw_parent_->account();
  // Which of the two has no room. Others may have changed that meanwhile.
  const bool own = account_->Left() <= parents.Left();
  const uint64_t total = own ? account_->limit() : parents.limit();
  left = std::min(left, total);
  const std::string parent = Quoted(raw_parent_->tenant().name());
  const char* const key = !own && parents.borrows() ? "memory_cap" : "memory";
  const std::string of = own ? "its own memory quota of " : "the memory quota of its parent ";
  const std::string where =
      own ? absl::StrCat(spec::ReadableBytes(total), " within its parent ", parent)
          : absl::StrCat(parent, ", ", spec::ReadableBytes(total), " for all of its children");
  return WithDetail(
      absl::ResourceExhaustedError(absl::StrCat(
          "tenant ", Quoted(tenant_->name()), " on GPU ", raw_gpu_->ordinal(), ": ",
          MoreThan(bytes, left), " asked, ", spec::ReadableBytes(left), " left of ", of, where,
          own ? "; free some, or raise '" : "; free some of its or its siblings', or raise '", key,
          own ? "' of its virtual device" : "' of its parent's virtual device")),
      {.tenant = own ? tenant_->name() : raw_parent_->tenant().name(),
       .limit = "memory",
       .asked = bytes,
       .left = left,
       .total = total});
}

absl::Status VirtualDevice::OverQuota(uint64_t bytes, uint64_t left) const {
  if (raw_parent_ != nullptr) return OverQuotaOfFamily(bytes, left);
  uint64_t free_bytes = 0, total = 0;
  Memory(&free_bytes, &total);
  left = std::min(left, total);
  const bool own = account_->parent() == nullptr;
  std::string more;
  if (const uint64_t lent = account_->lent();
      lent != 0 && bytes <= total && account_->own() + bytes <= total) {
    more = absl::StrCat("; ", spec::ReadableBytes(lent),
                        " of it are lent to others, who did not give it back ('memory_cap')");
  } else if (account_->borrows()) {
    more = absl::StrCat("; ", spec::ReadableBytes(account_->guarantee()),
                        " of it are guaranteed ('memory'), the rest is what others leave unused");
  }
  return WithDetail(
      absl::ResourceExhaustedError(absl::StrCat(
          "tenant ", Quoted(tenant_->name()), " on GPU ", raw_gpu_->ordinal(), ": ",
          MoreThan(bytes, left), " asked, ", spec::ReadableBytes(left), " left of ",
          own ? "its memory quota of " : "the memory that no quota promises to others, ",
          spec::ReadableBytes(total), more,
          own ? absl::StrCat("; free some, or raise '",
                             account_->borrows() ? "memory_cap" : "memory",
                             "' of its virtual device")
              : std::string("; free some, or give the tenant a quota of its own ('memory')"))),
      {.tenant = tenant_->name(), .limit = "memory", .asked = bytes, .left = left, .total = total});
}

absl::Status VirtualDevice::DeviceFull(uint64_t bytes, driver::Result result,
                                       const char* call) const {
  const absl::Status driver_status = driver::ToStatus(result, call);
  if (result != driver::Result::kOutOfMemory) return driver_status;
  size_t free_bytes = 0, total = 0;
  static_cast<void>(raw_gpu_->driver().MemInfo(&free_bytes, &total));
  RecordDenied(bytes, free_bytes, gate::TraceEvent::kDeviceFull);
  absl::Status status(
      driver_status.code(),
      absl::StrCat(driver_status.message(), ": ", spec::ReadableBytes(bytes), " asked by tenant ",
                   Quoted(tenant_->name()), " within its quota, ", spec::ReadableBytes(free_bytes),
                   " free of ", spec::ReadableBytes(total), " on GPU ", raw_gpu_->ordinal(),
                   "; memory is used outside gpushare, or the runtime's memory "
                   "reserve is too small"));
  status = base::WithPayloadsOf(std::move(status), driver_status);
  return WithDetail(std::move(status), {.tenant = tenant_->name(),
                                        .limit = "device",
                                        .asked = bytes,
                                        .left = free_bytes,
                                        .total = total});
}

void VirtualDevice::AddPool(const std::weak_ptr<MemoryPool>& pool) {
  const base::MutexLock lock(&mutex_);
  std::erase_if(pools_, [](const auto& weak) { return weak.expired(); });
  pools_.push_back(pool);
  has_pools_.store(true, std::memory_order_relaxed);
}

std::vector<std::shared_ptr<MemoryPool>> VirtualDevice::memory_pools() const {
  std::vector<std::shared_ptr<MemoryPool>> pools;
  const base::MutexLock lock(&mutex_);
  for (const auto& weak : pools_) {
    if (std::shared_ptr<MemoryPool> pool = weak.lock()) pools.push_back(std::move(pool));
  }
  return pools;
}

void VirtualDevice::TrimPools(uint64_t bytes, std::optional<Time> began) {
  // What its program has idle in the driver's pools and in graphs.
  const driver::RelaxedCapture relaxed(raw_gpu_->driver());
  const uint64_t before = account_->charged();
  raw_gpu_->runtime()->books().MakeRoom(*account_);
  const uint64_t idle = before - std::min(before, account_->charged());
  if (idle >= bytes) return;
  bytes -= idle;
  for (const std::shared_ptr<MemoryPool>& pool : memory_pools()) {
    const uint64_t given = pool->Trim(bytes, began);
    if (given >= bytes) return;
    bytes -= given;
  }
  if (const std::shared_ptr<DriverPool> pool = driver_pool()) pool->Trim(bytes);
}

void VirtualDevice::TellOfFreed() {
  raw_gpu_->runtime()->books().TellOfEarlierFrees(*account_);
  for (const std::shared_ptr<MemoryPool>& pool : memory_pools()) pool->TellOfFreed();
  if (const std::shared_ptr<DriverPool> pool = driver_pool()) pool->TellOfFreed();
}

std::shared_ptr<DriverPool> VirtualDevice::driver_pool() const {
  const base::MutexLock lock(&mutex_);
  return driver_pool_;
}

absl::StatusOr<std::shared_ptr<DriverPool>> VirtualDevice::StreamOrderedPool() {
  if (std::shared_ptr<DriverPool> pool = driver_pool()) return pool;
  GPUSHARE_ASSIGN_OR_RETURN(const std::shared_ptr<DriverPool> made, DriverPool::Create(*this));
  {
    const base::MutexLock lock(&mutex_);
    if (driver_pool_ == nullptr) {
      driver_pool_ = made;
      has_pools_.store(true, std::memory_order_relaxed);
      return made;
    }
  }
  made->End();  // another thread was faster
  return driver_pool();
}

void VirtualDevice::Given() {
  giving_.fetch_sub(1);
  given_.fetch_add(1);
  raw_gpu_->clock().Wake(given_, INT32_MAX);
  Unhold();
}

bool VirtualDevice::AwaitGiven(uint32_t seen, Time until) const {
  if (giving_.load() == 0 && given_.load() == seen) return false;
  if (raw_gpu_->clock().Now() >= until) return false;
  raw_gpu_->clock().Wait(given_, seen, until, Nanos(0));
  return true;
}

std::shared_ptr<SwappableMemory> VirtualDevice::swappable() const {
  const base::MutexLock lock(&mutex_);
  return swappable_;
}

absl::StatusOr<std::shared_ptr<SwappableMemory>> VirtualDevice::Swappable() {
  if (std::shared_ptr<SwappableMemory> memory = swappable()) return memory;
  GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<SwappableMemory> made, SwappableMemory::Create(*this));
  // Before anybody can have any: a stream that is made meanwhile looks once others can find it.
  raw_gpu_->HasUnbooked();
  swaps_.store(true);
  for (const std::shared_ptr<Stream>& stream : raw_gpu_->StreamsOf(this)) stream->UseDoor();
  // Who suspends or resumes without it is done with that.
  const base::ClockLock turn(raw_gpu_->clock(), swap_turn_);
  const base::MutexLock lock(&mutex_);
  if (swappable_ == nullptr) swappable_ = std::move(made);
  return swappable_;
}

quota::Demand VirtualDevice::MakeRoom(uint64_t bytes, Asked* asked, std::optional<Time> began) {
  quota::Account& account = *account_;
  quota::Account& root = account.root();
  const bool has_promise = raw_parent_ != nullptr || account.parent() == nullptr;
  if (asked != nullptr && asked->place != nullptr) {
    if (!asked->began.has_value()) asked->began = gpu_->clock().Now();
    began = asked->began;
    if (!std::exchange(asked->told, true)) raw_gpu_->TellOfFreed(*this);
  }
  // Before anything is looked at: what is there then is there for the caller.
  const bool promised = has_promise && raw_gpu_->loans().may_lend() && bytes <= root.guarantee() &&
                        root.own() + bytes <= root.guarantee();
  quota::Demand demand = promised ? quota::Demand(root) : quota::Demand();
  if (has_promise && !has_pools_.load(std::memory_order_relaxed) && account.Room() >= bytes &&
      (raw_parent_ == nullptr || root.Room() >= bytes)) {
    return demand;
  }
  uint64_t free_bytes = 0, total = 0;
  Memory(&free_bytes, &total);
  if (bytes > total) return demand;
  if (free_bytes < bytes) TrimPools(bytes - free_bytes + root.Over(), began);
  // If its own quota is full, what others give up does not help.
  if (raw_parent_ != nullptr && account.Left() < bytes) return demand;
  if ((account.parent() != nullptr || has_children()) && root.Room() < bytes) {
    raw_gpu_->TrimFamily(*this, bytes, began);
  }
  if (promised) RecallFor(bytes, asked, began);
  // Who waits asks again from time to time, and does not wait for each answer.
  if (root.source() != nullptr && root.Room() < bytes) {
    account.Grow(bytes, asked != nullptr && asked->place != nullptr ? gpu_->clock().Now() : kNever);
  }
  return demand;
}

void VirtualDevice::RecallFor(uint64_t bytes, Asked* asked, std::optional<Time> began) {
  const quota::Account& account = *account_;
  const quota::Account& root = account.root();
  const auto others_wait_for = [&] {
    const uint64_t all = account.waiting_bytes();
    return asked != nullptr && asked->place != nullptr ? all - std::min(all, bytes) : all;
  };
  if (asked != nullptr && !asked->ahead.has_value()) asked->ahead = others_wait_for();
  const auto wanted = [&] {
    // What came back meanwhile may have served it.
    if (asked != nullptr && asked->place != nullptr && !asked->place->waits()) return uint64_t{0};
    uint64_t all = bytes;
    if (asked != nullptr) all += std::min(*asked->ahead, others_wait_for());
    const uint64_t promised = root.guarantee(), own = root.own();
    return std::min(all, promised - std::min(promised, own));
  };
  const auto lacks = [&] {
    const uint64_t all = wanted();
    return all - std::min(all, root.Reachable());
  };
  if (lacks() == 0) return;
  const bool ask = asked != nullptr && wanted() > asked->bytes;
  if (ask) asked->bytes = wanted();
  raw_gpu_->Recall(*this, lacks, ask, began);
}

void VirtualDevice::SetReclaimer(std::shared_ptr<const Reclaimer> reclaimer) {
  {
    const base::MutexLock lock(&mutex_);
    reclaimer_.swap(reclaimer);
  }
  // The one before is released without the lock.
}

bool VirtualDevice::AskBack(uint64_t bytes) const {
  std::shared_ptr<const Reclaimer> reclaimer;
  {
    const base::MutexLock lock(&mutex_);
    reclaimer = reclaimer_;
  }
  if (reclaimer == nullptr || Reclaiming::Within(reclaimer.get())) return false;
  const Reclaiming here(reclaimer.get());
  return reclaimer->call(reclaimer->context, bytes) != 0;
}

absl::Status VirtualDevice::Charge(const Request& request) {
  if (request.bytes == 0) return NoBytes();
  const quota::Grant grant = Reserve(request);
  return grant ? absl::OkStatus() : Refuse(request, grant.left);
}

absl::StatusOr<driver::DevicePtr> VirtualDevice::Take(const Request& request) {
  GPUSHARE_RETURN_IF_ERROR(Charge(request));
  return TakeReserved(request.bytes);
}

quota::Grant VirtualDevice::Reserve(const Request& request) {
  const uint64_t bytes = request.bytes;
  Asked asked;
  if (!request.wait) {
    for (;;) {
      const uint32_t given = given_.load();
      const quota::Demand demand = MakeRoom(bytes, &asked);
      const quota::Grant grant = account_->TryReserve(bytes);
      if (grant) return grant;
      if (AwaitGiven(given, kNever)) continue;
      account_->CountDenied();
      return grant;
    }
  }
  // What is freed in pools comes through its stream; of foreign streams nobody tells.
  const auto ticket = std::make_shared<quota::Ticket>();
  asked.place = ticket.get();
  const auto look = [&] {
    if (request.AskCalledOff(raw_gpu_->clock().Now()) || context_lost()) {
      static_cast<void>(account_->CallAway(ticket, raw_gpu_->clock()));
    }
    if (const std::shared_ptr<DriverPool> pool = driver_pool()) pool->Trim(UINT64_MAX);
    static_cast<void>(MakeRoom(bytes, &asked));
    account_->Poll();
    return raw_gpu_->clock().Now() + kPoolLook;
  };
  const quota::Grant grant =
      account_->ReserveBefore(bytes, raw_gpu_->clock(), request.deadline, ticket, look);
  if (!grant && !request.CalledOff()) account_->CountDenied();
  return grant;
}

absl::Status VirtualDevice::Refuse(const Request& request, uint64_t left, uint64_t growth) {
  const uint64_t bytes = request.bytes;
  if (request.CalledOff()) {
    return absl::CancelledError(absl::StrCat("tenant ", Quoted(tenant_->name()), ": the wait for ",
                                             spec::ReadableBytes(bytes), " was called off"));
  }
  if (context_lost()) {
    return absl::AbortedError(
        absl::StrCat("tenant ", Quoted(tenant_->name()), " on GPU ", raw_gpu_->ordinal(), ": ",
                     spec::ReadableBytes(bytes),
                     " asked, and its own context is lost, with memory that is charged until the "
                     "virtual device is closed; close it and create another"));
  }
  denied_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  RecordDenied(bytes, left, 0);
  uint64_t free_bytes = 0, total = 0;
  Memory(&free_bytes, &total);
  const absl::Status refused = OverQuota(bytes, left);
  std::string more;
  if (growth > bytes) {
    more = absl::StrCat(" (the driver would take ", spec::ReadableBytes(growth), " for it)");
  }
  const bool late = request.wait && std::max(bytes, growth) <= total;
  if (late) absl::StrAppend(&more, "; waited for it until the deadline");
  if (more.empty()) return refused;
  return WithDetail(
      absl::Status(late ? absl::StatusCode::kDeadlineExceeded : refused.code(),
                   absl::StrCat(refused.message(), more)),
      {.tenant = tenant_->name(), .limit = "memory", .asked = bytes, .left = left, .total = total});
}

absl::StatusOr<driver::DevicePtr> VirtualDevice::TakeReserved(uint64_t bytes) {
  const ContextScope current(site());
  driver::DevicePtr pointer = 0;
  const driver::Result result =
      current.ok() ? gpu_->driver().MemAlloc(&pointer, bytes) : driver::Result::kInvalidContext;
  if (result != driver::Result::kSuccess) {
    account_->Cancel(bytes);
    if (!current.ok()) return current.status();
    return DeviceFull(bytes, result, "cuMemAlloc");
  }
  account_->Commit(bytes);
  Hold();
  RecordMemory();
  return pointer;
}

absl::StatusOr<driver::DevicePtr> VirtualDevice::Allocate(const Request& request) {
  if (request.bytes == 0) return NoBytes();
  struct RoomFor final : books::Room {
    RoomFor(VirtualDevice& d, const Request& r) : device(d), request(r) {}
    // `bytes`: what the books charge, which may be more than what was asked.
    quota::Grant Reserve(quota::Account&, uint64_t bytes) override {
      Request charged = request;
      charged.bytes = bytes;
      return device.Reserve(charged);
    }
    bool waits() const override { return request.wait; }
    VirtualDevice& device;
    const Request& request;
  };
  RoomFor room(*this, request);
  const ContextScope current(site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  Hold();
  driver::DevicePtr pointer = 0;
  books::Answer answer;
  try {
    answer = raw_gpu_->runtime()->books().MemAlloc(
        {.account = account_, .owner = owner(), .context = site().context, .room = &room}, &pointer,
        request.bytes);
  } catch (...) {  // the host has no memory to wait or to make room with
    Unhold();
    throw;
  }
  if (answer.ok()) {
    quota::Allocation stale;
    if (raw_gpu_->has_unbooked() && raw_gpu_->unbooked().Take(pointer, &stale)) [[unlikely]] {
      raw_gpu_->InSlot(stale.device)->Lost(stale);  // past us, with its context
    }
    RecordMemory();
    return pointer;
  }
  Unhold();  // not the last: the caller's is there
  if (answer.at_quota) {
    return Refuse(request, answer.left, raw_gpu_->runtime()->books().ChargeOf(request.bytes));
  }
  if (answer.no_host_memory) {
    return absl::ResourceExhaustedError("the host has no memory left for gpushare's books");
  }
  return DeviceFull(request.bytes, static_cast<driver::Result>(answer.result), "cuMemAlloc");
}

namespace {

driver::Result FreeOnDevice(Gpu& gpu, VirtualDevice* caller, driver::DevicePtr pointer) {
  return LentMeanwhile(caller, [&] { return gpu.driver().MemFree(pointer); });
}

// Frees what was taken from the books, in the context that it is of; what the driver would not free stays charged, and
// is in the books again, for when its context ends or the GPU is closed.
absl::Status FreeTaken(Gpu& gpu, VirtualDevice* caller, driver::DevicePtr pointer,
                       const quota::Allocation& allocation, ContextScope::Mode mode) {
  books::Books& books = gpu.runtime()->books();
  VirtualDevice* const owner = gpu.runtime()->FindOwner(allocation.device);
  if (owner != nullptr && (allocation.device ^ gpu.OwnerIn(0)) >> Runtime::kSlotBits != 0) {
    caller = nullptr;  // it waits for another GPU
  }
  const auto free = [&] {
    const ContextScope current(owner != nullptr ? owner->site() : gpu.site(), mode);
    const auto call = [&] {
      const driver::Result freed =
          current.ok() ? FreeOnDevice(gpu, caller, pointer) : driver::Result::kInvalidContext;
      return static_cast<decltype(books::Answer::result)>(freed);
    };
    const absl::Status status = driver::ToStatus(
        static_cast<driver::Result>(books.FreeTaken(pointer, allocation, call)), "cuMemFree");
    if (status.ok() || !absl::IsAborted(status)) return status;
    // A context that is lost takes its memory along: one of its own when it ends, the GPU's with the process.
    quota::Allocation lost;
    if (owner != nullptr && owner->door() != nullptr) {
      owner->LoseContext();
    } else if (books.Take(pointer, &lost)) {
      books.Gone(lost);
    }
    return status;
  };
  ContextDoor* const door = owner == nullptr ? nullptr : owner->door();
  if (door == nullptr) return free();
  // The credit may end it, whose door and context are in use until the end of this scope.
  owner->Hold();
  const HeldDevice held(*owner);
  // Whoever ends the context finds in the books what visitors have put back, unless it did not wait for them.
  ContextDoor::Visit visit(*door);
  if (visit.inside()) {
    const absl::Status status = free();
    quota::Allocation again;
    if (status.ok() || !door->late() || !books.Take(pointer, &again)) return status;
    visit.Leave();
  }
  door->AwaitEnd();
  books.Gone(allocation);
  return absl::OkStatus();
}

}  // namespace

absl::Status VirtualDevice::Give(driver::DevicePtr pointer, uint64_t bytes, bool waits) {
  return FreeTaken(*raw_gpu_, waits ? this : nullptr, pointer,
                   {bytes, account_, quota::Kind::kDirect, owner(),
                    raw_gpu_->runtime()->books().TagOf(site().context)},
                   ContextScope::Mode::kAsk);
}

void VirtualDevice::Credited() {
  RecordMemory();
  Unhold();
}

void VirtualDevice::Lost(const quota::Allocation& allocation) {
  if (allocation.kind == quota::Kind::kPool) {
    driver_pool()->Ended();  // the pool is charged, and knows what it has
  } else {
    Unhold();  // swappable memory is there still, and goes with the virtual device
  }
}

void VirtualDevice::Abandon(uint64_t bytes) {
  account_->Release(bytes);
  Unhold();
}

namespace {

// Whether the pointer is to be freed through this GPU, or any other one of its runtime.
bool Knows(Gpu& gpu, driver::DevicePtr pointer) {
  quota::Allocation allocation;
  return gpu.unbooked().Find(pointer, &allocation) || gpu.PoolAt(pointer) != nullptr ||
         gpu.runtime()->books().Find(pointer, &allocation);
}

}  // namespace

absl::Status FreePointer(Gpu& gpu, VirtualDevice* caller, driver::DevicePtr pointer,
                         const MemoryOrder& order) {
  if (pointer == 0) return absl::OkStatus();
  const ContextScope current(gpu);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  quota::Allocation allocation;
  // No call of the driver where that is the context already.
  if (gpu.runtime()->books().Take(pointer, &allocation)) {
    return FreeTaken(gpu, caller, pointer, allocation, ContextScope::Mode::kTrust);
  }
  if (gpu.has_unbooked() && gpu.unbooked().Take(pointer, &allocation)) {
    const VirtualDevice& owner = *gpu.InSlot(allocation.device);
    if (allocation.kind == quota::Kind::kMapping) {
      const std::shared_ptr<SwappableMemory> memory = owner.swappable();
      return memory->FreeTaken(pointer, allocation, caller);
    }
    const std::shared_ptr<DriverPool> pool = owner.driver_pool();
    return pool->FreeTaken(pointer, allocation, order);
  }
  if (const std::shared_ptr<MemoryPool> pool = gpu.PoolAt(pointer)) {
    return FreeInPool(*pool, pointer, order);
  }
  // The driver would free what belongs to another GPU or runtime, whose pools and books would not know.
  for (const std::shared_ptr<Gpu>& other : OpenGpusOver(gpu.driver())) {
    if (other.get() != &gpu && Knows(*other, pointer)) return FreePointer(*other, nullptr, pointer);
  }
  const driver::Result freed = FreeOnDevice(gpu, caller, pointer);
  const absl::Status status = driver::ToStatus(freed, "cuMemFree");
  if (status.ok()) return status;
  const absl::Status told(
      status.code(),
      absl::StrCat(status.message(),
                   "; gpushare knows no allocation at this pointer: it was freed before, "
                   "or is not the start of one"));
  return base::WithPayloadsOf(told, status);
}

}  // namespace gpushare::device
