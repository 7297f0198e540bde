// SPDX-License-Identifier: Apache-2.0
// Lends memory that tenants leave unused to tenants that may borrow.
//
//   LoanBook book;
//   auto rest = Account::Create(8 * kGiB, std::nullopt, book);     // the part of the device that is not guaranteed to anyone
//   auto owner = Account::Create(6 * kGiB, std::nullopt, book);    // its limit is its guarantee
//   auto borrower = Account::Create(2 * kGiB, 8 * kGiB, book);     // 2 GiB guaranteed, 8 GiB at most
//   book.Join(*rest);
//   book.Join(*owner, *rest);
//   book.Join(*borrower, *rest);
//   borrower->Reserve(5 * kGiB);   // 3 GiB of it are borrowed, and charged to the owner as lent
//   owner->Reserve(4 * kGiB);      // refused: 3 GiB are left
//   {
//     const Demand demand(*owner);                // it lends nothing more, and is repaid first
//     borrower->Release(2 * kGiB);                // however the borrower was asked to
//     owner->Reserve(4 * kGiB);                   // granted
//   }
//
// Lent bytes are charged to the lender like its own use, in the same single step. So the sum of all held bytes never exceeds the
// sum of the guarantees, and an account that only lends stays lock-free. Bytes that a borrower frees repay its loan first. Loans
// are not between pairs: it is not recorded who lent to whom. When an owner wants more of its own, what it has lent is first
// moved to other accounts that have room, before any borrower is asked to give something back.
//
// Guarantees are taken from one account, the rest, and go back into it, together with the lent part of them. No byte belongs to
// two accounts while guarantees change, even if others reserve meanwhile.
//
// An account lends nothing more while it has a Demand, or while requests wait for a part of its guarantee. A request that waits
// for borrowed bytes, or for others to use less, is served by their releases. For memory that comes free in other ways, call
// Account::Poll().
//
// Units: bytes. Threading: thread-safe, by one spin lock for the accounts that borrow and for requests that do not fit at first.
// Borrowing looks at every account of the book. An account must leave by Retire() before it is destroyed. The book must outlive
// its accounts.
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
  // The same, with a guarantee that is taken from that of `rest`, which must not borrow. False if `rest` holds so much itself
  // that there is no room for it; then nothing has changed.
  bool Join(Account& account, Account& rest);
  // The account stops lending. `heir`, which must have the room, takes over what it has lent. The account still owes what it
  // has borrowed.
  void Retire(Account& account, Account& heir);
  // Sets new limits of an account that has joined; `most` counts only if it may borrow. A larger guarantee takes the difference
  // from `rest`, and a smaller one gives it to `rest`. What the account holds beyond its guarantee becomes borrowed if it may
  // borrow. Otherwise it counts as Over(), and does not become a part of `rest` until SetLimit() adds it there. False as for
  // Join().
  bool SetLimits(Account& account, uint64_t guarantee, uint64_t most, Account& rest);
  // Sets the limit of an account that does not borrow, the rest, without changing other accounts' limits. Lent bytes that no
  // longer fit are moved to other accounts, as far as they have room.
  void SetLimit(Account& account, uint64_t limit);

  // Whether any account in the book may borrow.
  bool may_lend() const { return borrowers_.load(std::memory_order_relaxed) != 0; }

  // The bytes that it holds without its loan, and those that it holds beyond its loan and its guarantee.
  uint64_t WithoutLoan(const Account& account) const;
  uint64_t Over(const Account& account) const;
  // Implement Account::Left() and Reachable().
  uint64_t Left(const Account& account);
  uint64_t Reachable(const Account& account);

  // Internal if the figures are inconsistent. Exact while no other thread uses the accounts.
  absl::Status CheckInvariants() const;

 private:
  friend class Account;

  // Serves the requests that wait on any of the accounts in order of arrival, skipping those that do not fit.
  void Serve();
  void AddWaiters(const Account& but, Waiters* waiters) const;

  // The path of accounts that may borrow, and of requests that did not fit.
  Grant Charge(Account& account, uint64_t bytes);
  void Uncharge(Account& account, uint64_t bytes);
  void Overdraw(Account& account, uint64_t bytes);

  // These need the lock.
  uint64_t Available(const Account& but) const;
  uint64_t Take(const Account& but, uint64_t bytes);  // takes up to `bytes`
  void Repay(Account& account);
  void GiveBack(uint64_t bytes);
  void PassOn(Account& from, Account& to, uint64_t bytes);  // moves lent bytes
  bool Grow(Account& account, uint64_t guarantee, uint64_t most, Account& rest);
  void Shrink(Account& account, uint64_t guarantee, uint64_t most, Account& rest);
  void MakeRoom();  // for one account more, before anything changes
  void Add(Account& account);

  std::atomic<uint32_t> borrowers_{0};
  std::atomic<uint32_t> waiters_{0};  // the number of waiters in all lines
  std::atomic<uint64_t> came_{0};     // the number of arrivals in all lines
  mutable SpinLock lock_;
  std::vector<Account*> accounts_;
  uint64_t loans_ = 0;  // the sum of all loans, including those of retired accounts
};

// While it exists, the account wants back what it has lent.
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
