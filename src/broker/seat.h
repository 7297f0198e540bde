// SPDX-License-Identifier: Apache-2.0
// A process's place on one GPU: the page that the broker writes for the process, and the page that the process writes.
#ifndef GPUSHARE_BROKER_SEAT_H_
#define GPUSHARE_BROKER_SEAT_H_

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "ipc/page.h"

namespace gpushare::broker {

inline constexpr auto kRelaxed = std::memory_order_relaxed;

struct Seat {
  ipc::LimitsPage* limits = nullptr;
  const ipc::UsagePage* usage = nullptr;  // untrusted, and may change between two reads
  bool changed = false;                   // the process has to be woken
};

// The seats with changed limits, each once. The caller of Take() wakes their processes.
class Changed {
 public:
  void Add(Seat& seat) {
    if (seat.changed) return;
    seat.changed = true;
    seats_.push_back(&seat);
  }
  void Forget(const Seat& seat) { std::erase(seats_, &seat); }
  std::vector<Seat*> Take() {
    for (Seat* seat : seats_) seat->changed = false;
    return std::exchange(seats_, {});
  }

 private:
  std::vector<Seat*> seats_;
};

// Does not wake the process: a process that asks reads the flag itself.
inline void SetInLine(Seat& seat, bool in_line) {
  std::atomic<uint32_t>& flags = seat.limits->flags;
  const uint32_t others = flags.load(kRelaxed) & ~uint32_t{ipc::LimitsPage::kInLine};
  flags.store(others | (in_line ? uint32_t{ipc::LimitsPage::kInLine} : 0u));
}

// Sets the flags of `mask` to `flags`.
inline void SetFlags(Seat& seat, uint32_t mask, uint32_t flags, Changed& changed) {
  const uint32_t now = seat.limits->flags.load(std::memory_order_relaxed);
  if ((now & mask) == flags) return;
  seat.limits->flags.store((now & ~mask) | flags, std::memory_order_release);
  changed.Add(seat);
}

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_SEAT_H_
