// SPDX-License-Identifier: Apache-2.0
// The promises of a GPU's memory and time: admission, memory from a broker's grant, lending and taking back.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/abi/last_error.h"
#include "device/gpu/gpu.h"
#include "device/memory/driver_pool.h"
#include "device/process/runtime.h"
#include "device/process/tenant.h"
#include "device/share/virtual_device.h"
#include "spec/text.h"

namespace gpushare::device {

// Memory held beyond the present promises. Only devices that hold more than was promised to them are visited. Borrowed memory
// is charged to the lender.
uint64_t Gpu::HeldByQuotas() {
  uint64_t held = 0;
  for (const auto& [tenant, device] : retired_) {
    const quota::Account& account = device->account();
    if (device->has_quota()) held += loans_.WithoutLoan(account);
  }
  // For a quota that was lowered below its use, the excess.
  for (auto at = over_quota_.begin(); at != over_quota_.end();) {
    const uint64_t over = loans_.Over((*at)->account());
    if (over == 0) {  // it cannot exceed its quota again without another resize
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

namespace {

// A child's promise comes out of its parent's, so it takes nothing of the GPU's.
Admission::Promise PromiseOf(const VirtualDevice& device, const spec::Limits& limits) {
  if (device.parent() != nullptr) return {};
  return {limits.memory, limits.compute.guarantee};
}

std::string ShareText(double share) { return spec::FormatShare(std::round(share * 1e4) / 1e4); }

}  // namespace

absl::Status Gpu::CheckFamily(const VirtualDevice& device, const spec::Limits& limits) const {
  const double wanted = limits.compute.guarantee;
  const double of_children = device.of_children_.guarantees();
  if (of_children > wanted + kRounding) {
    return absl::FailedPreconditionError(
        absl::StrCat("tenant ", Quoted(device.tenant().name()), ": a guarantee of ",
                     ShareText(wanted), " asked, but ", ShareText(of_children),
                     " are promised to its children; ask for more ('compute' or 'guarantee'), or "
                     "shrink theirs"));
  }
  const VirtualDevice* const parent = device.parent();
  if (parent == nullptr || wanted <= 0) return absl::OkStatus();
  const double all = books_->guarantee(parent->seat_.promise);
  const double others = parent->of_children_.guarantees_but(device.seat_.of_parent);
  if (others + wanted <= all + kRounding) return absl::OkStatus();
  const double left = std::max(0.0, all - others);
  const auto millionths = [](double share) {
    return static_cast<uint64_t>(std::llround(share * 1e6));
  };
  return WithDetail(
      absl::ResourceExhaustedError(absl::StrCat(
          "tenant ", Quoted(device.tenant().name()), ": a guarantee of ", ShareText(wanted),
          " asked, ", ShareText(left), " left of the ", ShareText(all), " of its parent ",
          Quoted(parent->tenant().name()), " (", ShareText(others),
          " promised to its other children); ask for less ('compute' or 'guarantee'), or raise the "
          "parent's")),
      {.tenant = parent->tenant().name(),
       .limit = "guarantee",
       .asked = millionths(wanted),
       .left = millionths(left),
       .total = millionths(all)});
}

absl::StatusOr<Gpu::Seat> Gpu::Admit(VirtualDevice* device, const spec::Limits& limits) {
  TrimUnusedPools();
  const Tenant& tenant = device->tenant();
  const Admission::Promise promise = PromiseOf(*device, limits);
  // Repeats, since unpromised memory may be taken by others while the lock is not held.
  for (;;) {
    {
      base::MutexLock lock(&mutex_);
      if (seated_.count(&tenant) != 0) {
        return absl::AlreadyExistsError(absl::StrCat("tenant ", Quoted(tenant.name()),
                                                     " has a virtual device on GPU ", ordinal_,
                                                     " already; resize that one"));
      }
      UpdateUnpromised();
      GPUSHARE_RETURN_IF_ERROR(CheckFamily(*device, limits));
      GPUSHARE_RETURN_IF_ERROR(books_->Check(tenant.name(), 0, promise, HeldWithoutQuota()));
      GPUSHARE_ASSIGN_OR_RETURN(std::optional<Seat> seat, TakeSeat(device, promise, limits));
      if (seat.has_value()) return *seat;
    }
    GPUSHARE_RETURN_IF_ERROR(AskFor(tenant, *promise.memory));
  }
}

absl::StatusOr<uint32_t> Gpu::FindSlot() {
  if (!free_slots_.empty()) return free_slots_.back();
  if (slots_used_ >> kChunkBits >= slots_.size()) {
    return absl::ResourceExhaustedError("there are too many virtual devices on this GPU");
  }
  std::atomic<Chunk*>& chunk = slots_[slots_used_ >> kChunkBits];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    constexpr size_t kSlots = size_t{1} << kChunkBits;
    free_slots_.reserve(slots_used_ + kSlots);  // so that Forget() needs no memory
    chunk.store(new Chunk[kSlots]{}, std::memory_order_release);
  }
  return slots_used_;
}

absl::StatusOr<std::optional<Gpu::Seat>> Gpu::TakeSeat(VirtualDevice* device,
                                                       const Admission::Promise& promise,
                                                       const spec::Limits& limits) {
  Seat seat;
  GPUSHARE_ASSIGN_OR_RETURN(seat.slot, FindSlot());
  bool joined = false;
  try {
    seated_[&device->tenant()] = device;
    seat.promise = books_->Add(promise);
    if (VirtualDevice* const parent = device->parent()) {
      seat.of_parent = parent->of_children_.Add({std::nullopt, limits.compute.guarantee});
    }
    joined = !device->has_quota() || loans_.Join(device->account(), *unpromised_);
  } catch (...) {
    GiveUpSeat(device, seat);
    throw;
  }
  if (!joined) {
    GiveUpSeat(device, seat);
    return std::nullopt;
  }
  // From here on nothing fails.
  if (free_slots_.empty()) {
    ++slots_used_;
  } else {
    free_slots_.pop_back();
  }
  slots_[seat.slot >> kChunkBits].load(std::memory_order_relaxed)[seat.slot & kChunkMask].store(
      device, std::memory_order_release);
  if (session_ != nullptr) UpdateUnpromised();
  return seat;
}

std::map<const Tenant*, VirtualDevice*>::node_type Gpu::GiveUpSeat(VirtualDevice* device,
                                                                   const Seat& seat) {
  books_->Remove(seat.promise);
  if (VirtualDevice* const parent = device->parent()) parent->of_children_.Remove(seat.of_parent);
  return seated_.extract(&device->tenant());
}

absl::Status Gpu::Change(VirtualDevice* device, const spec::Limits& limits) {
  TrimUnusedPools();
  const Admission::Promise promise = PromiseOf(*device, limits);
  quota::Account& account = device->account();
  const uint64_t most = limits.memory_cap.value_or(limits.memory.value_or(0));
  for (;;) {
    {
      base::MutexLock lock(&mutex_);
      UpdateUnpromised();
      // The new quota will cover what the device holds above its old one.
      uint64_t held = HeldWithoutQuota();
      if (device->has_quota()) held -= std::min(held, loans_.Over(account));
      GPUSHARE_RETURN_IF_ERROR(CheckFamily(*device, limits));
      GPUSHARE_RETURN_IF_ERROR(
          books_->Check(device->tenant().name(), device->seat_.promise, promise, held));
      if (VirtualDevice* const parent = device->parent()) {
        parent->of_children_.Replace(device->seat_.of_parent,
                                     {std::nullopt, limits.compute.guarantee});
        break;
      }
      // Before anything changes, since it needs memory. HeldByQuotas() removes it if it holds no more than its quota.
      if (limits.memory.has_value()) over_quota_.insert(device);
      if (!limits.memory.has_value() ||
          loans_.SetLimits(account, *limits.memory, most, *unpromised_)) {
        books_->Replace(device->seat_.promise, promise);
        if (session_ != nullptr) UpdateUnpromised();
        return absl::OkStatus();
      }
    }
    GPUSHARE_RETURN_IF_ERROR(
        AskFor(device->tenant(), quota::Minus(*limits.memory, account.guarantee())));
  }
  // The device is a child. Its waiters are in its parent's line.
  account.SetLimit(limits.memory.value_or(quota::kUnlimited));
  return absl::OkStatus();
}

// Makes the limit large enough that what the quotas leave has room for `bytes`.
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

Room Gpu::RoomFor(const Tenant& tenant) {
  if (tenant.parent() == nullptr) return room();
  const std::shared_ptr<VirtualDevice> parent = tenant.parent()->DeviceOn(this);
  if (parent == nullptr) return {.guarantee_left = 0};
  Room room;
  parent->Memory(&room.memory_left, &room.memory_total);
  base::MutexLock lock(&mutex_);
  room.guarantee_left =
      std::max(0.0, books_->guarantee(parent->seat_.promise) - parent->of_children_.guarantees());
  room.devices = seated_.size();
  return room;
}

void Gpu::Return(VirtualDevice* device) {
  base::MutexLock lock(&mutex_);
  retired_.insert(GiveUpSeat(device, device->seat_));
  over_quota_.erase(device);
  if (device->has_quota()) loans_.Retire(device->account(), *unpromised_);
  devices_.erase(device->seat_.promise);
  // Its streams keep the device alive, so they are unbound already.
  std::erase_if(contexts_, [](const auto& entry) { return entry.second.expired(); });
  UpdateUnpromised();
}

void Gpu::Forget(VirtualDevice* device) {
  base::MutexLock lock(&mutex_);
  const uint32_t slot = device->seat_.slot;
  slots_[slot >> kChunkBits].load(std::memory_order_relaxed)[slot & kChunkMask].store(
      nullptr, std::memory_order_release);
  const auto [begin, end] = retired_.equal_range(&device->tenant());
  retired_.erase(std::find_if(begin, end, [&](const auto& one) { return one.second == device; }));
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

uint64_t Gpu::Reclaiming() const { return session_->Reclaiming(); }

// It grows before apart_ does, and shrinks after; whoever asks has lowered the limit before, with the lock.
uint64_t Gpu::Charged() const { return apart_.load() + unpromised_->charged(); }

void Gpu::SetLimit(uint64_t limit) {
  base::MutexLock lock(&mutex_);
  limit_ = std::min(limit, capacity_);
  UpdateUnpromised();
}

uint64_t Gpu::HeldByAll() const {
  base::MutexLock lock(&mutex_);
  uint64_t held = unpromised_->Usage().committed;  // of all devices without a quota
  const auto count = [&](const VirtualDevice* device) {
    if (device->has_quota()) held += device->account().Usage().committed;
  };
  for (const auto& [tenant, device] : seated_) count(device);
  for (const auto& [tenant, device] : retired_) count(device);
  return held;
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
  for (const auto& [tenant, device] : retired_) count(device);
  return all;
}

// ---- Memory of several tenants ----

void Gpu::Recall(const VirtualDevice& owner, absl::FunctionRef<uint64_t()> lacks, bool ask,
                 std::optional<Time> began) {
  const std::vector<std::shared_ptr<VirtualDevice>> all = Devices();
  std::vector<std::shared_ptr<VirtualDevice>> borrowers = all;
  std::erase_if(borrowers, [&](const std::shared_ptr<VirtualDevice>& device) {
    return &device->account() == &owner.account().root() || device->account().loan() == 0;
  });
  std::stable_sort(borrowers.begin(), borrowers.end(), [](const auto& a, const auto& b) {
    if (a->band() != b->band()) return a->band() > b->band();  // the lowest priority first
    return a->account().loan() > b->account().loan();
  });
  const auto wanted_of = [&](const VirtualDevice& device) {
    return std::min(device.account().loan(), lacks());
  };
  // Memory that a parent has borrowed may be held by its children.
  const auto holders_of = [&](const std::shared_ptr<VirtualDevice>& borrower) {
    std::vector<VirtualDevice*> holders = {borrower.get()};
    if (!borrower->has_children()) return holders;
    for (const std::shared_ptr<VirtualDevice>& device : all) {
      if (device->parent() == borrower.get()) holders.push_back(device.get());
    }
    std::stable_sort(
        holders.begin(), holders.end(),
        [](const VirtualDevice* a, const VirtualDevice* b) { return a->band() > b->band(); });
    return holders;
  };
  for (const std::shared_ptr<VirtualDevice>& borrower : borrowers) {
    for (VirtualDevice* const device : holders_of(borrower)) {
      if (const uint64_t wanted = wanted_of(*borrower)) device->TrimPools(wanted, began);
    }
  }
  if (!ask) return;
  constexpr int kMostTimes = 16;
  for (const std::shared_ptr<VirtualDevice>& borrower : borrowers) {
    for (VirtualDevice* const device : holders_of(borrower)) {
      for (int times = 0; times < kMostTimes; ++times) {
        const uint64_t wanted = wanted_of(*borrower);
        if (wanted == 0 || !device->AskBack(wanted)) break;
        device->TrimPools(wanted, began);  // the pools may have kept what was freed
      }
    }
  }
}

void Gpu::TellOfFreed(const VirtualDevice& whose) {
  for (const std::shared_ptr<VirtualDevice>& device : Devices()) {
    const quota::Account& root = device->account().root();
    const bool family = &root == &whose.account().root();
    if (family || root.loan() != 0) device->TellOfFreed();
  }
}

void Gpu::TrimFamily(const VirtualDevice& but, uint64_t bytes, std::optional<Time> began) {
  TrimUnusedPools();
  const quota::Account& root = but.account().root();
  for (const std::shared_ptr<VirtualDevice>& device : Devices()) {
    if (device.get() == &but || &device->account().root() != &root) continue;
    const uint64_t room = root.Room();
    if (room >= bytes) return;
    device->TrimPools(bytes - room + root.Over(), began);
  }
}

}  // namespace gpushare::device
