// SPDX-License-Identifier: Apache-2.0
// Swappable allocations: how their bytes leave the device and come back.
#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock_lock.h"
#include "base/interrupt.h"
#include "base/status_macros.h"
#include "base/status_payloads.h"
#include "device/memory/swappable_memory.h"
#include "device/process/tenant.h"
#include "driver/relaxed_capture.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

absl::Status Told(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return status;
  return base::WithPayloadsOf(absl::Status(status.code(), absl::StrCat(what, status.message())),
                              status);
}

// Takes back what was done, however its scope ends, unless Leave() was called. Allocates nothing.
template <typename Call>
class Undo {
 public:
  explicit Undo(Call call) : call_(std::move(call)) {}
  ~Undo() {
    if (!left_) call_();
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;

  void Leave() { left_ = true; }

 private:
  const Call call_;
  bool left_ = false;
};

// While it exists, nobody asks the calling thread whether to wait on. That runs the program's code, which may free swappable
// memory and would wait for the lock that this thread holds.
class NotAsked {
 public:
  NotAsked() = default;
  ~NotAsked() { base::ExchangeInterrupt(before_); }
  NotAsked(const NotAsked&) = delete;
  NotAsked& operator=(const NotAsked&) = delete;

 private:
  const base::Interrupt before_ = base::ExchangeInterrupt({});
};

// What the device has to have room for.
uint64_t Missing(const std::vector<SwappablePiece*>& outside) {
  uint64_t bytes = 0;
  for (const SwappablePiece* piece : outside) {
    if (piece->physical == 0) bytes += piece->bytes;
  }
  return bytes;
}

}  // namespace

// Bytes that are reserved on the account; those that are not used go back.
class SwappableMemory::Room {
 public:
  Room(quota::Account& account, uint64_t bytes) : account_(account), bytes_(bytes) {}
  ~Room() {
    if (bytes_ > 0) account_.Cancel(bytes_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // False: there are fewer.
  bool Keep(uint64_t bytes) {
    if (bytes > bytes_) return false;
    if (bytes < bytes_) account_.Cancel(bytes_ - bytes);
    bytes_ = bytes;
    return true;
  }
  void Used(uint64_t bytes) { bytes_ -= bytes; }

 private:
  quota::Account& account_;
  uint64_t bytes_;
};

std::vector<SwappablePiece*> SwappableMemory::Outside() {
  std::vector<SwappablePiece*> outside;
  for (auto& [pointer, piece] : pieces_) {
    if (piece.out()) outside.push_back(&piece);
  }
  return outside;
}

void SwappableMemory::Took(Time began) {
  took_ns_.fetch_add((gpu_.clock().Now() - began).count(), std::memory_order_relaxed);
}

// ---- Out ----

absl::Status SwappableMemory::MoveOut(absl::FunctionRef<bool()> wanted) {
  const ContextScope current(gpu_);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const driver::RelaxedCapture relaxed(gpu_.driver());
  absl::Status status;
  {
    const NotAsked not_asked;
    const base::ClockLock turn(gpu_.clock(), device_.swap_turn());
    if (!wanted()) return absl::OkStatus();
    TryAgain();
    const Time began = gpu_.clock().Now();
    status = CopyOut();
    // Also what left before and could not be given back.
    status.Update(Leave());
    Took(began);
  }
  device_.RecordMemory();
  return Told(status,
              absl::StrCat("tenant ", Quoted(device_.tenant().name()), " on GPU ", gpu_.ordinal(),
                           " is suspended, and its swappable memory, or some of it, "
                           "stays on the device; resume it, or suspend it once more: "));
}

// All of it arrives at the host before any of it leaves the device.
absl::Status SwappableMemory::CopyOut() {
  std::vector<SwappablePiece*> inside;
  for (auto& [pointer, piece] : pieces_) {
    // Without a mapping it is one whose free was refused half-way: nobody reads it any more.
    if (!piece.out() && piece.mapped) inside.push_back(&piece);
  }
  if (inside.empty()) return absl::OkStatus();
  MakeRoomToKeep(2 * pieces_.size());
  Undo undo([&] {
    for (SwappablePiece* piece : inside) DropHost(*piece);
  });
  uint64_t bytes = 0;
  {
    GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<BulkCopy> copy,
                              BulkCopy::Create(gpu_.driver(), device_.gate()));
    for (SwappablePiece* piece : inside) {
      GPUSHARE_RETURN_IF_ERROR(Told(
          AllocateHost(*piece),
          absl::StrCat(spec::ReadableBytes(piece->bytes), " of the host's pinned memory asked: ")));
      GPUSHARE_RETURN_IF_ERROR(copy->ToHost(piece->host, piece->pointer, piece->bytes));
      bytes += piece->bytes;
    }
    GPUSHARE_RETURN_IF_ERROR(copy->Finish());
  }
  undo.Leave();
  for (SwappablePiece* piece : inside) piece->also_here = true;
  moved_out_.fetch_add(bytes, std::memory_order_relaxed);
  times_out_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status SwappableMemory::Leave() {
  absl::Status first;
  for (SwappablePiece* piece : Outside()) {
    const absl::Status left = Detach(*piece).status();
    if (piece->also_here) DropHost(*piece);  // the driver would not unmap it: it stays
    first.Update(left);
  }
  return first;
}

// ---- In ----

absl::Status SwappableMemory::MoveIn(absl::FunctionRef<void()> arrived) {
  const ContextScope current(gpu_);
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const driver::RelaxedCapture relaxed(gpu_.driver());
  base::InterruptWatch interrupt(gpu_.clock().Now());
  const std::string tenant =
      absl::StrCat("tenant ", Quoted(device_.tenant().name()), " on GPU ", gpu_.ordinal(),
                   " stays suspended, with its swappable memory in the host's: ");
  std::optional<Time> deadline;
  for (;;) {
    VirtualDevice::Request request;
    Nanos patience(0);
    {
      const base::ClockLock turn(gpu_.clock(), device_.swap_turn());
      const std::vector<SwappablePiece*> outside = Outside();
      request.bytes = Missing(outside);
      for (const SwappablePiece* piece : outside) patience = std::max(patience, piece->patience);
    }
    // Not with the turn: what makes room may be a free here.
    if (request.bytes > 0) {
      if (!deadline.has_value()) deadline = After(gpu_.clock().Now(), patience);
      request.wait = patience > Nanos(0);
      request.deadline = *deadline;
      request.interrupt = &interrupt;
      GPUSHARE_RETURN_IF_ERROR(Told(device_.Charge(request), tenant));
    }
    Room room(device_.account(), request.bytes);
    const NotAsked not_asked;
    const base::ClockLock turn(gpu_.clock(), device_.swap_turn());
    const std::vector<SwappablePiece*> outside = Outside();
    if (!room.Keep(Missing(outside))) continue;  // it was suspended again meanwhile
    const Time began = gpu_.clock().Now();
    const absl::Status returned = Return(outside, room);
    if (!outside.empty()) Took(began);
    if (returned.ok()) {
      arrived();
      TryAgain();
    }
    device_.RecordMemory();
    return Told(returned, tenant);
  }
}

// All of it arrives on the device before any of it is gone from the host.
absl::Status SwappableMemory::Return(const std::vector<SwappablePiece*>& outside, Room& room) {
  if (outside.empty()) return absl::OkStatus();
  MakeRoomToKeep(2 * pieces_.size());
  Undo undo([&] {
    for (SwappablePiece* piece : outside) static_cast<void>(Detach(*piece));
  });
  uint64_t bytes = 0;
  {
    GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<BulkCopy> copy,
                              BulkCopy::Create(gpu_.driver(), device_.gate()));
    for (SwappablePiece* piece : outside) {
      const bool had = piece->physical != 0;
      const SwappablePiece::Outcome attached = Attach(*piece);
      if (!had && piece->physical != 0) room.Used(piece->bytes);
      if (!attached.ok()) return device_.DeviceFull(piece->bytes, attached.result, attached.call);
      GPUSHARE_RETURN_IF_ERROR(copy->ToDevice(piece->pointer, piece->host, piece->bytes));
      bytes += piece->bytes;
    }
    GPUSHARE_RETURN_IF_ERROR(copy->Finish());
  }
  undo.Leave();
  for (SwappablePiece* piece : outside) DropHost(*piece);
  moved_in_.fetch_add(bytes, std::memory_order_relaxed);
  times_in_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

}  // namespace gpushare::device
