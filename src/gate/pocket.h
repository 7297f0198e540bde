// SPDX-License-Identifier: Apache-2.0
// The credit of a tenant in the hands of the only thread that launches for it. The thread spends it without an atomic
// read-modify-write, which would wait for everything before it and hold up everything behind it.
//
//   uint64_t word;
//   if (pocket.Spend(page.ChargeOf(cost), &word)) ...       // the thread whose pocket it is
//
// Only that thread writes `spent`, and only a holder of the engine's lock writes `limit`. To take credit out, the holder lowers
// `limit`, makes every thread of the process pass a barrier (base/process_barrier.h), and then reads `spent`. The thread reads
// `limit` again after its store to `spent`. So either its launch is included in the value that was read, or it sees the lower
// limit. In the latter case it asks under the lock whether the launch is paid (Purse::Claim).
//
// When its thread ends, it leaves the pocket (Leave()), and another thread may get it; the old one has no pointer to it any
// more. A pocket lives as long as its thread or its purse, whichever is longer.
//
// Threading: as described above.
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

  // As TenantPage::credit: [ns:40 | launches:24]. When the launches wrap around to 0, they carry a nanosecond.
  std::atomic<uint64_t> spent{0};
  // The greatest value that `spent` may reach before the launch is counted; 0: nothing may be launched.
  std::atomic<uint64_t> limit{0};
  // The number of the price list by which its thread pays. A purse never uses a number twice. Written under the lock when the
  // charges of launches change while the credit is here, and when the credit comes here.
  std::atomic<uint64_t> prices{0};
  uint64_t seen = 0;  // under the lock: `spent` when something was last taken out
  Purse* const purse = nullptr;
  // ThisThread() of the owner; null: the pocket was left. Only the owner can find itself here.
  std::atomic<const void*> thread{nullptr};

  bool IsOf(const void* one) const { return thread.load(std::memory_order_relaxed) == one; }
  // Called by its thread, which must not use it afterwards. The next owner finds what has been spent.
  void Leave() { thread.store(nullptr, std::memory_order_release); }
  bool IsLeft() const { return thread.load(std::memory_order_acquire) == nullptr; }

  // Spends `charge` (TenantPage::ChargeOf) if there is enough credit. `word` gets the old value, with the launch's number.
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

  // Credit was taken out meanwhile. Returns whether the launch numbered by `before` is paid; if not, it does not count.
  static bool Claim(Pocket& pocket, uint64_t before) noexcept;  // purse.cc
};

// For threads that have no pocket.
inline constinit Pocket no_pocket;

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_POCKET_H_
