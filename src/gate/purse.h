// SPDX-License-Identifier: Apache-2.0
// Holds a tenant's credit: in its page, for all threads, or in the pocket of the only thread that launches.
//
// A thread gets the credit into its pocket when it has asked for grants several times in a row and no other thread has. It
// loses the credit when another thread asks. After each loss twice as many requests in a row are needed, and half as many
// once a thread has kept the credit for that many requests. So threads that take turns rarely pay for the change, and a thread that
// another one disturbs now and then recovers. A thread that ends does not count as a loss, and its pocket can be reused.
//
// Threading: call everything under the engine's lock, unless stated otherwise.
#ifndef GPUSHARE_GATE_PURSE_H_
#define GPUSHARE_GATE_PURSE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/sync.h"
#include "gate/pocket.h"
#include "gate/tenant_page.h"

namespace gpushare::gate {

class Purse {
 public:
  // `mutex` is the engine's lock.
  Purse(TenantPage& page, base::Mutex& mutex) : page_(page), mutex_(mutex) {}
  Purse(const Purse&) = delete;
  Purse& operator=(const Purse&) = delete;

  // The credit word as in TenantPage::credit, wherever the credit is.
  uint64_t Look() const;
  void Add(uint64_t ns);
  uint64_t TakeAll();
  // To empty several purses with one barrier, call StopSpending() of each, then base::ProcessBarrier() if any returned true,
  // then for each TakeAll(), or LetSpend() to keep its credit. In between nothing else of the purse may be called, and the lock
  // must not be released.
  bool StopSpending();
  void LetSpend();
  // Spends for the calling thread. Credit in another thread's pocket is taken from there first.
  bool Spend(uint64_t ns, uint32_t* launch);
  // Moves credit from another thread's pocket into the page; also from the calling thread's own pocket if the process barrier
  // is not available any more.
  void Share();

  // The charges of launches have changed.
  void PricesChanged();

  // The pocket that has the credit; null: the page has it. May be called without the lock: whether it is the calling thread's
  // own pocket is reliable.
  Pocket* holder() const { return holder_.load(std::memory_order_acquire); }

  // The calling thread, which can pay from a pocket, has asked for a grant. Returns its pocket if the credit is there now, else
  // null; also null if there is no memory for a pocket.
  Pocket* Asked() noexcept;
  // The pocket that had the credit last. A thread keeps its own until it leaves it.
  const std::shared_ptr<Pocket>& held() const { return held_; }

  // Called by Pocket::Spend(), without the lock.
  bool Claim(Pocket& pocket, uint64_t before) noexcept;

 private:
  static constexpr size_t kMostPockets = 64;  // for threads that exist at the same time
  static constexpr uint32_t kAtFirst = 4, kAtMost = 1 << 14;
  // Beyond this the sum of what was spent is reset, since it has 40 bits.
  static constexpr uint64_t kMuch = uint64_t{1} << 36;

  // The pocket of a thread, or one that was left. Null: there are too many.
  std::shared_ptr<Pocket> PocketOf(const void* thread);
  static void Rebase(Pocket& pocket);
  static bool Paid(const Pocket& pocket, uint64_t spent);
  static uint64_t Spent(const Pocket& pocket);
  static bool IsAtRest(const Pocket& pocket);
  uint64_t Empty(Pocket& pocket);

  TenantPage& page_;
  base::Mutex& mutex_;
  std::atomic<Pocket*> holder_{nullptr};
  uint64_t prices_ = 0;      // number of the last price list
  uint64_t stopped_at_ = 0;  // limit of the holder's pocket while it is stopped; 0: not stopped
  std::shared_ptr<Pocket> held_;
  std::vector<std::shared_ptr<Pocket>> pockets_;
  const void* last_ = nullptr;                 // the thread that asked last
  uint32_t in_a_row_ = 0, wanted_ = kAtFirst;  // requests in a row so far, and needed for a change
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_PURSE_H_
