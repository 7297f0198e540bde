// SPDX-License-Identifier: Apache-2.0
// Memory that tenants leave unused, lent to those who may borrow.
//
//   LoanBook book;
//   auto rest = Account::Create(8 * kGiB, std::nullopt, book);     // of the device, what nobody is promised
//   auto owner = Account::Create(6 * kGiB, std::nullopt, book);    // its limit is its guarantee
//   auto borrower = Account::Create(2 * kGiB, 8 * kGiB, book);     // 2 GiB guaranteed, 8 GiB at most
//   book.Join(*rest);
//   book.Join(*owner, *rest);
//   book.Join(*borrower, *rest);
//   borrower->Reserve(5 * kGiB);   // 3 GiB of it are borrowed, and charged to the owner as lent
//   owner->Reserve(4 * kGiB);      // refused: 3 GiB are left
//   {
//     const Demand demand(*owner);                // nothing more of it is lent, and what comes back is first its own
//     borrower->Release(2 * kGiB);                // whoever asked for that, and how
//     owner->Reserve(4 * kGiB);                   // granted
//   }
//
// What an account lends is charged to it as its own use is, by the same one step; so the sum of all that is held
// never exceeds the sum of the guarantees, and an account that only lends stays lock-free. What a borrower frees repays
// its loan first. Loans have no pairs: who lent to whom does not matter, and when an owner wants more of its own, what
// it has lent is moved to others that have room before anybody is asked for anything.
//
// Guarantees come out of one account, the rest, and go back into it, together with what of them is lent: no byte is
// anybody's twice while they change, whoever reserves meanwhile.
//
// Nothing more is lent of an account while it has a Demand, or waiters for what is promised to it. Who waits for what others have borrowed, or for
// others to leave something, is served by their releases; for what comes free in other ways it asks (Account::Poll).
//
// Units: bytes. Threading: thread-safe, by one spin lock for the accounts that borrow and for those whose requests do not
// fit at first. To borrow takes a look at every account of the book. An account leaves by Retire() before it is
// destroyed; the book outlives its accounts.
#ifndef GPUSHARE_QUOTA_LOANS_H_
#define GPUSHARE_QUOTA_LOANS_H_

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "quota/ledger.h"
#include "quota/spin_lock.h"

namespace gpushare::quota {

class LoanBook {
 public:
  LoanBook() = default;
  LoanBook(const LoanBook&) = delete;
  LoanBook& operator=(const LoanBook&) = delete;

  // From now on the account lends what it does not use.
  void Join(Account& account);
  // The same, with a guarantee that comes out of that of `rest`, which does not borrow. False: what rest holds itself
  // leaves no room for it, and nothing has changed.
  bool Join(Account& account, Account& rest);
  // It lends no more: `heir` takes over what it has lent, and has the room for it. What it has borrowed it still owes.
  void Retire(Account& account, Account& heir);
  // New limits of one that has joined; `most` counts for those who may borrow. What the guarantee grows by was the
  // rest's, and what it shrinks by becomes the rest's; what the account holds beyond it is borrowed by who may, and
  // else is Over() it, and no part of the rest until that is told (SetLimit). False as for Join().
  bool SetLimits(Account& account, uint64_t guarantee, uint64_t most, Account& rest);
  // A new limit of one that does not borrow, by itself: of the rest. What it leaves no room for is moved to others
  // as far as there is room.
  void SetLimit(Account& account, uint64_t limit);

  // Whether anybody in the book may borrow.
  bool may_lend() const { return borrowers_.load(std::memory_order_relaxed) != 0; }

  // What it holds beyond what it has borrowed; and beyond that and its guarantee, since that was lowered.
  uint64_t WithoutLoan(const Account& account) const;
  uint64_t Over(const Account& account) const;
  // What Account::Left() and Reachable() say.
  uint64_t Left(const Account& account);
  uint64_t Reachable(const Account& account);

  // Internal when the figures contradict each other. Exact while no other thread uses the accounts.
  absl::Status CheckInvariants() const;

 private:
  friend class Account;

  // Who waits on any of the accounts: in the order in which they came, but for those who do not fit.
  void Serve();
  void AddWaiters(const Account& but, Waiters* waiters) const;

  // The path of those who may borrow, and of those whose request did not fit.
  Grant Charge(Account& account, uint64_t bytes);
  void Uncharge(Account& account, uint64_t bytes);
  void Overdraw(Account& account, uint64_t bytes);

  // With the lock.
  uint64_t Available(const Account& but) const;
  uint64_t Take(const Account& but, uint64_t bytes);  // up to so many
  void Repay(Account& account);
  void GiveBack(uint64_t bytes);
  void PassOn(Account& from, Account& to, uint64_t bytes);  // what is lent
  bool Grow(Account& account, uint64_t guarantee, uint64_t most, Account& rest);
  void Shrink(Account& account, uint64_t guarantee, uint64_t most, Account& rest);
  void Add(Account& account);

  std::atomic<uint32_t> borrowers_{0};
  std::atomic<uint32_t> waiters_{0};  // of all lines
  std::atomic<uint64_t> came_{0};     // to any of them
  mutable SpinLock lock_;
  std::vector<Account*> accounts_;
  uint64_t loans_ = 0;  // of all, also of those that have retired
};

// While it exists the account wants back what it has lent.
class [[nodiscard]] Demand {
 public:
  Demand() = default;
  explicit Demand(Account& account) : account_(&account) { account.wanted_.fetch_add(1); }
  Demand(Demand&& other) noexcept : account_(std::exchange(other.account_, nullptr)) {}
  Demand& operator=(Demand&&) = delete;
  ~Demand() {
    if (account_ == nullptr || account_->wanted_.fetch_sub(1) != 1) return;
    if (account_->waiters_->load() != 0) account_->Serve();  // it lends again
  }

 private:
  Account* account_ = nullptr;
};

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_LOANS_H_
