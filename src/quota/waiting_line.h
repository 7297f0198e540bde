// SPDX-License-Identifier: Apache-2.0
// The reservations that wait for memory of one account and its children, in order of arrival.
//
// Serve() grants what fits, oldest first. An account whose oldest waiter does not fit is skipped, so that none of its waiters
// is overtaken, while other children of the same parent go on. Threads that release memory or raise a limit, in the account or
// in another one of its LoanBook, run it. A waiter itself polls only what its `look` function checks.
//
// Each account has a queue of its own. The line is a list of the accounts with waiters, in the order of their first waiters. So
// the cost of serving is one look at each of these accounts and one step for each waiter served, however many wait behind them.
// The same holds for arriving and leaving. Only LookAgain(), and lowering a limit below what a waiter wants, visit all waiters.
//
// Threading: thread-safe. A mutex guards the queues. It is taken only if there are waiters and never held while waiting, and no
// driver is called under it.
#ifndef GPUSHARE_QUOTA_WAITING_LINE_H_
#define GPUSHARE_QUOTA_WAITING_LINE_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/sync.h"
#include "quota/ledger.h"

namespace gpushare::quota {

class WaitingLine {
 public:
  // For several lines `all` counts the waiters, and `came` the arrivals. With null this line has counters of its own.
  WaitingLine(std::atomic<uint32_t>* all, std::atomic<uint64_t>* came)
      : all_(all), came_(came != nullptr ? *came : own_came_) {}

  // Waits until `bytes` are charged to `account` (returns true), the deadline passes or the ticket is called away. Calls `look`
  // as described for Account::ReserveBefore().
  bool Charge(Account& account, uint64_t bytes, base::Clock& clock, Time deadline,
              std::shared_ptr<Ticket> ticket, absl::FunctionRef<Time()> look);
  bool CallAway(const std::shared_ptr<Ticket>& ticket, base::Clock& clock);

  // Serves waiters whose number is less than `before`.
  void Serve(uint64_t before = UINT64_MAX);
  // Makes all waiters look again at once.
  void LookAgain();

  uint32_t waiters() const { return waiters_.load(); }
  // The fewest bytes that any account's first waiter wants.
  uint64_t least() const { return least_.load(); }
  // The number of the oldest waiter, from the counter that all lines of a book share; UINT64_MAX if there are no waiters.
  uint64_t oldest() const { return oldest_.load(); }
  std::atomic<uint32_t>* told() { return all_ != nullptr ? all_ : &waiters_; }

 private:
  // Removes a waiter. True if it has been granted.
  bool Leave(Ticket& ticket);

  void Append(const std::shared_ptr<Ticket>& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes a ticket and returns its reference to itself, which may be the last one.
  std::shared_ptr<Ticket> Remove(Ticket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CallAwayTooLarge(Account& account) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Insert and remove an account in the list; Link() inserts it after `place`, or first if that is null.
  void Link(Account& account, Account* place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unlink(Account& account) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FindLeast(uint64_t gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FindOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint64_t> least_{UINT64_MAX};
  std::atomic<uint64_t> oldest_{UINT64_MAX};
  std::atomic<uint32_t>* const all_;
  std::atomic<uint64_t> own_came_{0};
  std::atomic<uint64_t>& came_;
  base::Mutex mutex_;
  // The accounts that have waiters, in the order of their first waiters' numbers.
  Account* first_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Account* last_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_WAITING_LINE_H_
