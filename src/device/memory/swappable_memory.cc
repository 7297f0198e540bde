// SPDX-License-Identifier: Apache-2.0
// Swappable allocations: how they are made and freed.
#include "device/memory/swappable_memory.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock_lock.h"
#include "base/status_macros.h"
#include "books/books.h"
#include "device/process/runtime.h"
#include "driver/relaxed_capture.h"

namespace gpushare::device {
namespace {

absl::Status NoBooks() {
  return absl::ResourceExhaustedError("the host has no memory left for gpushare's books");
}

}  // namespace

SwappableMemory::SwappableMemory(VirtualDevice& device, uint64_t granule)
    : device_(device), gpu_(device.gpu()), granule_(granule) {}

absl::StatusOr<std::shared_ptr<SwappableMemory>> SwappableMemory::Create(VirtualDevice& device) {
  const Gpu& gpu = device.gpu();
  const ContextScope current(gpu);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  size_t granule = 0;
  const driver::Result result = gpu.driver().MemoryGranularity(&granule, gpu.ordinal());
  if (result == driver::Result::kNotSupported ||
      (result == driver::Result::kSuccess && granule == 0)) {
    return absl::UnimplementedError(absl::StrCat(
        "allocator strategy 'swappable': GPU ", gpu.ordinal(),
        " or its driver has no virtual memory management; use 'direct' or 'suballocating'"));
  }
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(result, "cuMemGetAllocationGranularity"));
  return std::shared_ptr<SwappableMemory>(new SwappableMemory(device, granule));
}

// What no quota has room for stays as it is.
uint64_t SwappableMemory::Rounded(uint64_t bytes) const {
  const uint64_t more = (granule_ - bytes % granule_) % granule_;
  return bytes > UINT64_MAX - more ? bytes : bytes + more;
}

SwappablePiece::Outcome SwappableMemory::Attach(SwappablePiece& piece) {
  const bool had = piece.physical != 0;
  const SwappablePiece::Outcome outcome = piece.Attach(gpu_.driver(), gpu_.ordinal());
  if (!had && piece.physical != 0) device_.account().Commit(piece.bytes);
  return outcome;
}

SwappablePiece::Outcome SwappableMemory::Detach(SwappablePiece& piece) {
  const bool had = piece.physical != 0;
  const SwappablePiece::Outcome outcome = piece.Detach(gpu_.driver());
  if (had && piece.physical == 0) device_.account().Release(piece.bytes);
  return outcome;
}

absl::Status SwappableMemory::AllocateHost(SwappablePiece& piece) {
  void* host = nullptr;
  GPUSHARE_RETURN_IF_ERROR(
      driver::ToStatus(gpu_.driver().AllocPinned(&host, piece.bytes), "cuMemHostAlloc"));
  piece.host = host;
  host_bytes_.fetch_add(piece.bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

driver::Result SwappableMemory::FreeHost(SwappablePiece& piece) {
  if (piece.host == nullptr) return driver::Result::kSuccess;
  const driver::Result result = gpu_.driver().FreePinned(piece.host);
  if (result != driver::Result::kSuccess) return result;
  piece.host = nullptr;
  host_bytes_.fetch_sub(piece.bytes, std::memory_order_relaxed);
  return result;
}

void SwappableMemory::DropHost(SwappablePiece& piece) {
  piece.also_here = false;
  if (FreeHost(piece) == driver::Result::kSuccess) return;
  kept_.push_back({.bytes = piece.bytes, .host = std::exchange(piece.host, nullptr)});
}

absl::Status SwappableMemory::Empty(SwappablePiece& piece) {
  GPUSHARE_RETURN_IF_ERROR(Detach(piece).status());
  return driver::ToStatus(FreeHost(piece), "cuMemFreeHost");
}

absl::Status SwappableMemory::Dissolve(SwappablePiece& piece) {
  GPUSHARE_RETURN_IF_ERROR(Empty(piece));
  return piece.FreeAddresses(gpu_.driver()).status();
}

void SwappableMemory::MakeRoomToKeep(size_t pieces) {
  const size_t needs = kept_.size() + pieces + 1;
  if (kept_.capacity() < needs) kept_.reserve(std::max(needs, 2 * kept_.capacity()));
}

void SwappableMemory::TryAgain() {
  std::erase_if(kept_, [&](SwappablePiece& piece) { return Dissolve(piece).ok(); });
}

bool SwappableMemory::List(driver::DevicePtr pointer, uint64_t bytes) {
  quota::Allocation replaced;
  // The driver gave the address out again: what was there ended past us, with its context.
  books::Books& books = gpu_.runtime()->books();
  if (books.Take(pointer, &replaced)) books.Gone(replaced);
  switch (gpu_.unbooked().Insert(
      pointer, {bytes, &device_.account(), quota::Kind::kMapping, device_.slot()}, &replaced)) {
    case quota::PointerTable::InsertResult::kInserted:
      break;
    case quota::PointerTable::InsertResult::kReplaced:
      gpu_.InSlot(replaced.device)->Lost(replaced);
      break;
    case quota::PointerTable::InsertResult::kNoMemory:
      return false;
  }
  return true;
}

absl::StatusOr<driver::DevicePtr> SwappableMemory::Allocate(const VirtualDevice::Request& asked,
                                                            Nanos patience) {
  VirtualDevice::Request request = asked;
  request.bytes = Rounded(asked.bytes);
  GPUSHARE_RETURN_IF_ERROR(device_.Charge(request));
  quota::Account& account = device_.account();
  const ContextScope current(gpu_);
  if (!current.ok()) {
    account.Cancel(request.bytes);
    return current.status();
  }
  const driver::RelaxedCapture relaxed(gpu_.driver());
  const base::ClockLock turn(gpu_.clock(), device_.swap_turn());
  std::map<driver::DevicePtr, SwappablePiece> made;
  try {
    made.emplace(0, SwappablePiece{.bytes = request.bytes, .patience = patience});
    MakeRoomToKeep(pieces_.size() + 1);
  } catch (const std::bad_alloc&) {
    account.Cancel(request.bytes);
    return NoBooks();
  }
  TryAgain();
  SwappablePiece& piece = made.begin()->second;
  const SwappablePiece::Outcome outcome = Attach(piece);
  if (outcome.ok()) {
    device_.Hold();
    if (List(piece.pointer, asked.bytes)) {
      const driver::DevicePtr pointer = piece.pointer;
      auto node = made.extract(made.begin());
      node.key() = pointer;
      pieces_.insert(std::move(node));
      device_.RecordMemory();
      return pointer;
    }
  }
  if (piece.physical == 0) account.Cancel(piece.bytes);
  if (!Dissolve(piece).ok()) kept_.push_back(piece);
  if (outcome.ok()) {
    device_.Unhold();  // not the last: the caller has the virtual device
    return NoBooks();
  }
  return device_.DeviceFull(request.bytes, outcome.result, outcome.call);
}

// Unlike a free of the driver's, unmapping may not wait for who uses the memory.
absl::Status SwappableMemory::AwaitUse(VirtualDevice* caller) const {
  const auto wait = [&](const Site& site) {
    const ContextScope current(site);
    if (!current.ok()) return current.status();
    return LentMeanwhile(caller, [&] { return gpu_.AwaitWorkOrSay(); });
  };
  ContextDoor* const door = device_.door();
  if (door == nullptr) return wait(gpu_.site());
  ContextDoor::Visit visit(*door);
  if (visit.inside()) return wait(device_.site());
  door->AwaitEnd();
  return absl::OkStatus();
}

absl::Status SwappableMemory::FreeTaken(driver::DevicePtr pointer,
                                        const quota::Allocation& allocation,
                                        VirtualDevice* caller) {
  const std::shared_ptr<SwappableMemory> self = shared_from_this();
  const driver::RelaxedCapture relaxed(gpu_.driver());
  absl::Status status = AwaitUse(caller);
  {
    const ContextScope current(gpu_);
    const base::ClockLock turn(gpu_.clock(), device_.swap_turn());
    TryAgain();
    const auto at = pieces_.find(pointer);
    if (at == pieces_.end()) return absl::OkStatus();
    // Where the context is lost nothing runs any more; what the driver does not take back then is gone with it.
    SwappablePiece& piece = at->second;
    if (status.ok() || absl::IsAborted(status)) status.Update(Empty(piece));
    if (!status.ok() && !absl::IsAborted(status)) {
      quota::Allocation replaced;
      static_cast<void>(gpu_.unbooked().Insert(pointer, allocation, &replaced));
      return status;
    }
    Forget(piece);
    // Without memory they are nothing to whoever frees.
    if (!piece.FreeAddresses(gpu_.driver()).ok() && status.ok()) kept_.push_back(piece);
    pieces_.erase(at);
  }
  device_.RecordMemory();
  device_.Unhold();  // may end it
  return status;
}

uint64_t SwappableMemory::Abandon(driver::DevicePtr pointer, bool give) {
  const std::shared_ptr<SwappableMemory> self = shared_from_this();
  uint64_t left = 0;
  {
    const ContextScope current(gpu_);
    const base::ClockLock turn(gpu_.clock(), device_.swap_turn());
    const auto at = pieces_.find(pointer);
    if (at == pieces_.end()) return 0;
    if (give) static_cast<void>(Dissolve(at->second));
    if (at->second.physical != 0) left = at->second.bytes;
    Forget(at->second);
    pieces_.erase(at);
  }
  device_.Unhold();  // may end it
  return left;
}

void SwappableMemory::End() {
  const ContextScope current(gpu_);
  const base::ClockLock turn(gpu_.clock(), device_.swap_turn());
  TryAgain();
  for (const SwappablePiece& piece : kept_) Forget(piece);
  kept_.clear();
  for (auto& [pointer, piece] : pieces_) {
    static_cast<void>(Dissolve(piece));
    Forget(piece);
  }
  pieces_.clear();
}

void SwappableMemory::Forget(const SwappablePiece& piece) {
  if (piece.physical != 0) device_.account().Release(piece.bytes);
  if (piece.host != nullptr) host_bytes_.fetch_sub(piece.bytes, std::memory_order_relaxed);
}

SwappableMemory::Figures SwappableMemory::figures() const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return {.host_bytes = host_bytes_.load(kRelaxed),
          .moved_out = moved_out_.load(kRelaxed),
          .moved_in = moved_in_.load(kRelaxed),
          .times_out = times_out_.load(kRelaxed),
          .times_in = times_in_.load(kRelaxed),
          .took = Nanos(took_ns_.load(kRelaxed))};
}

}  // namespace gpushare::device
