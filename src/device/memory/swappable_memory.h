// SPDX-License-Identifier: Apache-2.0
// The swappable allocations of one virtual device, behind the strategy `swappable`: virtual memory management gives each
// addresses of its own, so that its memory can leave the device while it is suspended and come back at the same place.
//
//   GPUSHARE_ASSIGN_OR_RETURN(driver::DevicePtr pointer, memory->Allocate(request, patience));
//   GPUSHARE_RETURN_IF_ERROR(memory->MoveOut(still));   // nothing runs, nothing is submitted
//   GPUSHARE_RETURN_IF_ERROR(memory->MoveIn(opens));
//
// What is charged to the account is the memory of the device: from before it is created until it is released. What is out is
// counted apart. Moving out keeps all of it on the device until all has arrived at the host, moving in keeps all of it there
// until all has arrived on the device: when the driver refuses something in between, no byte is lost, and each allocation is
// wholly here or there.
//
// swappable_memory.cc has allocations and frees, swappable_move.cc the moves.
//
// Life: each allocation is a reason for the virtual device to exist. Locks: one change at a time, by the virtual device's
// swap_turn(), which waits on the clock, since it spans calls of the driver; nothing waits for room under it.
#ifndef GPUSHARE_DEVICE_MEMORY_SWAPPABLE_MEMORY_H_
#define GPUSHARE_DEVICE_MEMORY_SWAPPABLE_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/memory/bulk_copy.h"
#include "device/memory/swappable_piece.h"
#include "device/share/virtual_device.h"
#include "driver/driver.h"
#include "quota/pointer_table.h"

namespace gpushare::device {

class SwappableMemory : public std::enable_shared_from_this<SwappableMemory> {
 public:
  // Unimplemented: the driver or the device has no virtual memory management.
  static absl::StatusOr<std::shared_ptr<SwappableMemory>> Create(VirtualDevice& device);
  SwappableMemory(const SwappableMemory&) = delete;
  SwappableMemory& operator=(const SwappableMemory&) = delete;

  // `patience`: how long its return may wait for room.
  absl::StatusOr<driver::DevicePtr> Allocate(const VirtualDevice::Request& request, Nanos patience);
  // `allocation` was taken out of the pointer table. May end the virtual device. Waits for who uses it, as a free of the
  // driver's does, while the unused time of `caller` (may be null) is lent.
  absl::Status FreeTaken(driver::DevicePtr pointer, const quota::Allocation& allocation,
                         VirtualDevice* caller);

  // Everything leaves the device, if `wanted` says so still.
  absl::Status MoveOut(absl::FunctionRef<bool()> wanted);
  // Everything comes back; then `arrived` is called, before anything can move again. Over the quota it waits as the most
  // patient of what is out. ResourceExhausted or DeadlineExceeded: all of it is where it was.
  absl::Status MoveIn(absl::FunctionRef<void()> arrived);

  struct Figures {
    uint64_t host_bytes = 0;               // of the host's memory, now
    uint64_t moved_out = 0, moved_in = 0;  // bytes so far
    uint64_t times_out = 0, times_in = 0;
    Nanos took{0};
  };
  Figures figures() const;

  // For a GPU that closes or a context that is gone, of an allocation that was taken out of the table: no longer charged,
  // and given back to the driver, or left to it, whose bytes are told. May end the virtual device.
  uint64_t Abandon(driver::DevicePtr pointer, bool give);
  // The virtual device goes.
  void End();

 private:
  SwappableMemory(VirtualDevice& device, uint64_t granule);

  uint64_t Rounded(uint64_t bytes) const;
  // With the turn. As the piece's own, and the account is told.
  SwappablePiece::Outcome Attach(SwappablePiece& piece);
  SwappablePiece::Outcome Detach(SwappablePiece& piece);
  // Where a free finds it.
  bool List(driver::DevicePtr pointer, uint64_t bytes);
  absl::Status AllocateHost(SwappablePiece& piece);
  driver::Result FreeHost(SwappablePiece& piece);
  void DropHost(SwappablePiece& piece);  // its bytes are on the device
  // What of a free is left to do. Nobody uses it. Empty(): but for its addresses.
  absl::Status Empty(SwappablePiece& piece);
  absl::Status Dissolve(SwappablePiece& piece);
  void Forget(const SwappablePiece& piece);  // the driver has what is left of it
  void TryAgain();                           // to give back what the driver would not take
  void MakeRoomToKeep(size_t pieces);
  std::vector<SwappablePiece*> Outside();
  absl::Status CopyOut();
  absl::Status Leave();
  class Room;
  absl::Status Return(const std::vector<SwappablePiece*>& outside, Room& room);
  void Took(Time began);

  absl::Status AwaitUse(VirtualDevice* caller) const;

  VirtualDevice& device_;
  Gpu& gpu_;
  const uint64_t granule_;

  // With the turn.
  std::map<driver::DevicePtr, SwappablePiece> pieces_;
  // What nobody knows any more and the driver would not take back. There is always room for the addresses of each piece and
  // for one more, and in a move for the host's memory of each piece besides.
  std::vector<SwappablePiece> kept_;

  std::atomic<uint64_t> host_bytes_{0}, moved_out_{0}, moved_in_{0}, times_out_{0}, times_in_{0};
  std::atomic<int64_t> took_ns_{0};
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_SWAPPABLE_MEMORY_H_
