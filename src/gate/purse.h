// SPDX-License-Identifier: Apache-2.0
// Where a tenant's credit is: in its page, for all threads, or in the pocket of the one that launches alone.
//
// A thread gets it into its pocket when it was the only one to ask for grants several times in a row, and loses it when
// another comes; then it takes twice as many to get it back, and half as many again when it has kept it for as many. So
// threads that take turns pay for it rarely, and one that another has come by now and then does not for ever. One that ends
// loses nothing to who comes after it, and leaves its pocket to it.
//
// Threading: under the engine's lock, but for what says otherwise.
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
  // `mutex`: the engine's.
  Purse(TenantPage& page, base::Mutex& mutex) : page_(page), mutex_(mutex) {}
  Purse(const Purse&) = delete;
  Purse& operator=(const Purse&) = delete;

  // As TenantPage::credit, wherever it is.
  uint64_t Look() const;
  void Add(uint64_t ns);
  uint64_t TakeAll();
  // Of several purses at once, so that one barrier does for all: StopSpending() of each, then, if any said so,
  // base::ProcessBarrier(), then TakeAll() of each, or LetSpend() where all is to stay as it was. Nothing else of the purse is
  // called in between, nor is the lock let go.
  bool StopSpending();
  void LetSpend();
  // By the calling thread. From another's pocket it is fetched.
  bool Spend(uint64_t ns, uint32_t* launch);
  // What is in another's pocket than the calling thread's goes into the page; in its own too, where there is no barrier any
  // more.
  void Share();

  // What launches are charged is not what it was.
  void PricesChanged();

  // The pocket in which it is; null: in the page. Without the lock: of the calling thread that is the truth until it lets go.
  Pocket* holder() const { return holder_.load(std::memory_order_acquire); }

  // The calling thread, which may launch by a pocket, has asked for a grant. Its pocket, if the credit is there now; null:
  // it is not. Where there is no memory for it, it is not.
  Pocket* Asked() noexcept;
  // The one in which the credit was last, for a thread to keep until it leaves it.
  const std::shared_ptr<Pocket>& held() const { return held_; }

  // Of Pocket::Spend(), which holds no lock.
  bool Claim(Pocket& pocket, uint64_t before) noexcept;

 private:
  static constexpr size_t kMostPockets = 64;  // of threads that are there
  static constexpr uint32_t kAtFirst = 4, kAtMost = 1 << 14;
  // So much spent is forgotten by its thread: the sum has 40 bits.
  static constexpr uint64_t kMuch = uint64_t{1} << 36;

  // That of a thread, or one that was left. Null: there are too many.
  std::shared_ptr<Pocket> PocketOf(const void* thread);
  static void Rebase(Pocket& pocket);
  static bool Paid(const Pocket& pocket, uint64_t spent);
  static uint64_t Spent(const Pocket& pocket);
  static bool IsAtRest(const Pocket& pocket);
  uint64_t Empty(Pocket& pocket);

  TenantPage& page_;
  base::Mutex& mutex_;
  std::atomic<Pocket*> holder_{nullptr};
  uint64_t prices_ = 0;      // the number of the last list
  uint64_t stopped_at_ = 0;  // the limit of the holder's pocket while it is stopped; 0: it is not
  std::shared_ptr<Pocket> held_;
  std::vector<std::shared_ptr<Pocket>> pockets_;
  const void* last_ = nullptr;                 // who asked last
  uint32_t in_a_row_ = 0, wanted_ = kAtFirst;  // times it asked: to get it, and since it has it
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_PURSE_H_
