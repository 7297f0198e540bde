// SPDX-License-Identifier: Apache-2.0
// The reservations that wait for memory, of one account and its children, in the order of arrival.
//
// Serve() grants what fits, oldest first; an account whose oldest waiter does not fit is passed over
// whole, so that nothing of it is overtaken, while other children of the same parent go on. It is run
// by whoever released memory or raised a limit, of the account or of another one of its LoanBook; a waiter polls only
// what it looks at.
//
// Each account has a queue of its own, and the line the accounts that have one, in the order of their first. So serving
// takes one look at each of these accounts and a step for each that is served, however many wait behind them; so do
// coming and leaving. Only LookAgain() goes to all, and a limit that was lowered below what somebody waits for.
//
// Threading: thread-safe. A mutex guards the queues; it is taken only when somebody waits, never while
// waiting, and no driver is called under it.
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
  // Of several lines `all` counts the waiters, and `came` those who have come; null: this one's alone.
  WaitingLine(std::atomic<uint32_t>* all, std::atomic<uint64_t>* came)
      : all_(all), came_(came != nullptr ? *came : own_came_) {}

  // Waits until `bytes` are charged to `account` (true), the deadline passes or the holder of the ticket is
  // called away. Calls `look` as Account::ReserveBefore() says.
  bool Charge(Account& account, uint64_t bytes, base::Clock& clock, Time deadline,
              std::shared_ptr<Ticket> ticket, absl::FunctionRef<Time()> look);
  bool CallAway(const std::shared_ptr<Ticket>& ticket, base::Clock& clock);

  // Those whose number is less than `before`.
  void Serve(uint64_t before = UINT64_MAX);
  // Has all who wait look at once.
  void LookAgain();

  uint32_t waiters() const { return waiters_.load(); }
  // The least that is waited for by anybody whom no other of the account is in front of.
  uint64_t least() const { return least_.load(); }
  // The number of the one that came first, beside all who count with it; UINT64_MAX: nobody waits.
  uint64_t oldest() const { return oldest_.load(); }
  std::atomic<uint32_t>* told() { return all_ != nullptr ? all_ : &waiters_; }

 private:
  // Takes a waiter out again; true: it has its grant.
  bool Leave(Ticket& ticket);

  void Append(const std::shared_ptr<Ticket>& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Its reference to itself, which is the last one at times.
  std::shared_ptr<Ticket> Remove(Ticket& ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CallAwayTooLarge(Account& account) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the accounts; behind `place`, null: first.
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
  // Those that have waiters, by the number of their first.
  Account* first_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Account* last_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_WAITING_LINE_H_
