// SPDX-License-Identifier: Apache-2.0
// The credit of a tenant in the hands of the one thread that launches for it, which spends it without an atomic operation:
// one that locks waits for all that is before it, and all that is behind it waits.
//
//   uint64_t word;
//   if (pocket.Spend(page.ChargeOf(cost), &word)) ...       // the thread whose pocket it is
//
// `spent` is written by that thread alone, `limit` by whoever holds the engine's lock. To take something out, `limit` is
// lowered, every thread of the process passes a barrier (base/process_barrier.h), and then `spent` is read: the thread
// looks at `limit` once more behind its store, so either its launch is in what was read, or it sees that there is less.
// In the latter case it asks under the lock what has become of it (Purse::Claim).
//
// When its thread ends, the pocket is left (Leave()) and may become another's: whoever has had it points to it no longer. It
// is there for as long as its thread or the purse.
//
// Threading: as that says.
#ifndef GPUSHARE_GATE_POCKET_H_
#define GPUSHARE_GATE_POCKET_H_

#include <atomic>
#include <cstdint>

namespace gpushare::gate {

class Purse;

struct alignas(64) Pocket {
  constexpr Pocket() = default;
  Pocket(Purse* whose, const void* its_thread) : purse(whose), thread(its_thread) {}
  Pocket(const Pocket&) = delete;
  Pocket& operator=(const Pocket&) = delete;

  // As TenantPage::credit: [ns:40 | launches:24]. When the launches begin again at 0 it is a nanosecond more.
  std::atomic<uint64_t> spent{0};
  // What that may come to, whatever the launches are; 0: none may be made.
  std::atomic<uint64_t> limit{0};
  // By which list of prices its thread pays: of no two that a purse ever had the number is the same. Written under the lock,
  // whenever what launches are charged changes while the credit is here, or it comes here.
  std::atomic<uint64_t> prices{0};
  uint64_t seen = 0;  // under the lock: `spent` when something was last taken out
  Purse* const purse = nullptr;
  // Whose: ThisThread(). Null: nobody's any more. A thread finds its own here only while it is its own.
  std::atomic<const void*> thread{nullptr};

  bool IsOf(const void* one) const { return thread.load(std::memory_order_relaxed) == one; }
  // By its thread, which does not come back to it. What it has spent is there for whoever gets it.
  void Leave() { thread.store(nullptr, std::memory_order_release); }
  bool IsLeft() const { return thread.load(std::memory_order_acquire) == nullptr; }

  // Spends such a charge (TenantPage::ChargeOf) if there is so much; the launch's number stands in `word`.
  [[gnu::always_inline]] bool Spend(uint64_t charge, uint64_t* word) {
    const uint64_t before = spent.load(std::memory_order_relaxed);
    const uint64_t after = before + charge;
    if (after > limit.load(std::memory_order_relaxed)) return false;
    spent.store(after + 1, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    *word = before;
    if (after > limit.load(std::memory_order_acquire)) [[unlikely]]
      return Claim(*this, before);
    return true;
  }

  // Something was taken out meanwhile. Whether the launch that was numbered `before` is paid; if not it never was.
  static bool Claim(Pocket& pocket, uint64_t before) noexcept;  // purse.cc
};

// Of those that have none.
inline constinit Pocket no_pocket;

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_POCKET_H_
