// SPDX-License-Identifier: Apache-2.0
// Accounts: how much of a GPU's memory a tenant may hold, and how much it holds.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Account> account, Account::Create(8ull << 30));
//   const Grant grant = account->Reserve(bytes);
//   if (!grant) return absl::ResourceExhaustedError(...grant.left...);
//   if (driver.MemAlloc(&pointer, bytes) != kSuccess) { account->Cancel(bytes); ... }
//   account->Commit(bytes);
//   ...
//   account->Release(bytes);   // after the driver has freed it
//
// Bytes are charged from Reserve() to Cancel() or Release(): charged = reserved + committed. Every reserved byte must be
// cancelled or committed exactly once, and every committed byte released exactly once. CheckInvariants() finds most violations.
//
// Guarantees, with any number of threads:
//   * The charge never exceeds the limit that the reservation saw, not even for an instant, except by Overdraw().
//   * A request that does not fit never makes one fail that does fit: it changes nothing but `denied`. (Adding first and
//     subtracting again would have that race.)
//   * A grant makes no system call, and its cost does not depend on how much is charged already.
//
// Live limits: SetLimit() below the charge takes nothing away. Held bytes stay held and usable. Every later reservation (of any
// size but 0) is refused until releases have brought the charge far enough below the new limit. A reservation that runs
// concurrently with SetLimit() sees one of the two limits. After lowering the limit of an account without a parent, its charge
// includes every concurrent reservation that the lower limit would have refused; any other such reservation is still refused.
// (It subtracts itself again then, the one case in which the charge is too high for a moment.)
//
// Nested budgets: a child's bytes are charged to its parent as well, and both limits hold. Only one level is implemented; a
// parent that has a parent is Unimplemented.
//
// Soft limits: an account of a LoanBook lends what it does not use to accounts that may borrow (loans.h). Lent bytes are part
// of its charge.
//
// Units: bytes. Threading: thread-safe. An account without a parent is lock-free. One with a parent has a spin lock of its own,
// since two counters change together. An account must outlive its children and every entry of a PointerTable that names it.
#ifndef GPUSHARE_QUOTA_LEDGER_H_
#define GPUSHARE_QUOTA_LEDGER_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/time.h"
#include "quota/source.h"
#include "quota/spin_lock.h"

namespace gpushare::quota {

inline constexpr uint64_t kUnlimited = UINT64_MAX;

// The difference, or 0 if it would be negative.
inline uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// The result of a reservation.
struct [[nodiscard]] Grant {
  bool granted = false;
  uint64_t left =
      0;  // bytes left under the tightest limit: after this grant, or when it was refused

  explicit operator bool() const { return granted; }
};

// An account's figures. They are read one after the other, so each is exact only at its own moment.
struct AccountUsage {
  uint64_t limit = 0;
  uint64_t borrowed = 0;   // bytes held beyond the guarantee
  uint64_t lent = 0;       // bytes of the guarantee that are lent to others
  uint64_t reserved = 0;   // requested from the driver, which has not answered yet
  uint64_t committed = 0;  // held
  uint64_t peak = 0;       // the highest `committed` so far
  uint64_t denied = 0;     // reservations refused, including those that waited in vain
  uint64_t waiting = 0;    // reservations that are waiting now
};

class Account;
class LoanBook;
class WaitingLine;

// The requests that wait for memory of an account, for code that cannot refer to the account when the memory comes free.
class Waiters {
 public:
  // Makes them look again at once. May be called from any thread, even one that must not call the driver.
  void LookAgain() const;

 private:
  friend class LoanBook;
  friend class Account;

  std::vector<std::shared_ptr<WaitingLine>> lines_;
};

// A place in a waiting line, for a request that may be satisfied in another way meanwhile: see Account::CallAway().
struct Ticket {
  enum State : uint32_t { kWaiting, kToLook, kGranted, kCalledAway, kLeft };
  std::atomic<uint32_t> state{kWaiting};

  bool waits() const {
    const uint32_t now = state.load();
    return now == kWaiting || now == kToLook;
  }

 private:
  friend class WaitingLine;

  // Used while the ticket is in line; only the line changes these.
  Account* account_ = nullptr;
  uint64_t bytes_ = 0, number_ = 0;
  base::Clock* clock_ = nullptr;
  Ticket *before_ = nullptr, *after_ = nullptr;
  std::shared_ptr<Ticket>
      self_;  // itself while it is in line; afterwards the next ticket to be woken
};

class Account {
 public:
  // `limit` is in bytes; kUnlimited for none. `parent` may be null. Unimplemented if the parent has a parent itself.
  static absl::StatusOr<std::unique_ptr<Account>> Create(uint64_t limit, Account* parent = nullptr);
  // Creates an account that, once it has joined the book, lends the unused part of its guarantee. With `most` it can borrow
  // beyond its guarantee, up to that total.
  static absl::StatusOr<std::unique_ptr<Account>> Create(uint64_t guarantee,
                                                         std::optional<uint64_t> most,
                                                         LoanBook& book);
  ~Account();
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  Grant Reserve(uint64_t bytes);
  // As Reserve(), but leaves it to the caller to count a refusal (CountDenied), since it may ask again.
  Grant TryReserve(uint64_t bytes) { return TryCharge(bytes); }

  // As Reserve(), but waits for releases until `deadline`. Requests that wait on one account are served in order of arrival: a
  // small request does not overtake a large one that is waiting, except through Reserve(), which never queues. A request is
  // refused at once if `bytes` exceeds the limit itself, or when the limit becomes lower than that.
  // With a new `ticket` another thread may end the wait, and it is left to the caller to count a refusal, since it may ask
  // again.
  Grant ReserveBefore(uint64_t bytes, base::Clock& clock, Time deadline,
                      const std::shared_ptr<Ticket>& ticket = nullptr);
  // While waiting it calls `look` without any lock: at once, and again at the time that `look` returns. `look` may release
  // memory, or call the ticket away.
  Grant ReserveBefore(uint64_t bytes, base::Clock& clock, Time deadline,
                      const std::shared_ptr<Ticket>& ticket, absl::FunctionRef<Time()> look);
  // Ends the wait of the ticket's request, which is refused. False if it has been granted or has ended already. If the request
  // does not wait yet, it is refused when it begins to.
  bool CallAway(const std::shared_ptr<Ticket>& ticket, base::Clock& clock);
  // Charges and commits bytes past every limit, because they are held already and cannot be given back now. Nothing more is
  // granted until releases have made room, as after SetLimit() below the charge.
  void Overdraw(uint64_t bytes);
  bool IsOverdrawn() const {
    return own() > limit() || (book_ != nullptr && Over() > 0) ||
           (parent_ != nullptr && parent_->IsOverdrawn());
  }

  void Commit(uint64_t bytes);   // reserved bytes are now held
  void Cancel(uint64_t bytes);   // reserved bytes were not taken after all
  void Release(uint64_t bytes);  // held bytes are free again

  void CountDenied() { denied_.fetch_add(1, std::memory_order_relaxed); }
  bool has_waiters() const;  // requests wait on this account, its parent or the parent's children
  // Whether a request may be waiting for bytes released here: in this family of accounts, or in an account that has lent them.
  bool is_awaited() const { return waiters_->load() != 0 && (has_waiters() || root().loan() != 0); }
  // The requests that wait now, and those of the family that will wait later.
  Waiters AwaitedBy() const;
  uint64_t waiting_bytes() const {
    return waiting_bytes_.load();
  }  // bytes waited for in this account

  // Serves waiting requests, as a release does. For memory that comes free without a release in an account of the book.
  void Poll() { Serve(); }

  // Sets where more bytes come from, for a share that several processes have in common. Call it before the account is used.
  void SetSource(std::shared_ptr<Source> source) { source_ = std::move(source); }
  // Its own source, or its parent's.
  const std::shared_ptr<Source>& source() const {
    return parent_ != nullptr ? parent_->source_ : source_;
  }
  // Asks the source for enough that `bytes` fit. Returns whether it raised the limit; false without a source. May wait, as the
  // source does.
  bool Grow(uint64_t bytes, Time deadline = kNever) {
    if (parent_ != nullptr) return parent_->Grow(bytes, deadline);
    return source_ != nullptr && source_->GetRoom(*this, bytes, deadline);
  }
  // The most bytes that can be held: the source's limit, if there is a source.
  uint64_t most() const {
    if (parent_ != nullptr) return std::min(limit(), parent_->most());
    return source_ != nullptr ? source_->Limit() : limit();
  }

  void SetLimit(
      uint64_t
          limit);  // for an account in a LoanBook that borrows or leaves, see LoanBook::SetLimits()
  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  uint64_t charged() const { return charged_.load(std::memory_order_relaxed); }
  uint64_t guarantee() const { return guarantee_.load(std::memory_order_relaxed); }
  uint64_t lent() const { return lent_.load(std::memory_order_relaxed); }
  uint64_t loan() const { return loan_.load(std::memory_order_relaxed); }
  // The bytes that it holds itself, without those that it has lent.
  uint64_t own() const {
    const uint64_t charged = charged_.load(std::memory_order_relaxed), lent = this->lent();
    return charged > lent ? charged - lent : 0;
  }
  // The bytes that can be reserved without borrowing or getting lent bytes back.
  uint64_t Room() const {
    const uint64_t may = guarantee_.load() + loan_.load(), charged = charged_.load();
    return may > charged ? may - charged : 0;
  }
  uint64_t Left() const;  // the most that can be reserved if all lent bytes come back
  // As Left(), but counts only those lent bytes for which other accounts have room now.
  uint64_t Reachable() const;
  uint64_t Over()
      const {  // bytes held beyond the guarantee and the loan, since limits were lowered
    const uint64_t may = guarantee_.load() + loan_.load(), charged = charged_.load();
    return charged > may ? charged - may : 0;
  }
  bool borrows() const { return borrows_; }
  Account* parent() const { return parent_; }
  // Its parent, or itself: the account that has the guarantee, borrows and lends.
  Account& root() { return parent_ != nullptr ? *parent_ : *this; }
  const Account& root() const { return parent_ != nullptr ? *parent_ : *this; }

  AccountUsage Usage() const;

  // Internal if the figures are inconsistent. Exact while no other thread uses the account.
  absl::Status CheckInvariants() const;

 private:
  friend class Demand;
  friend class LoanBook;
  friend class WaitingLine;

  Account(uint64_t limit, Account* parent, LoanBook* book, bool borrows);

  Grant TryCharge(uint64_t bytes);
  Grant ChargeByBook(uint64_t bytes);
  void UnchargeByBook(uint64_t bytes);
  bool lends() const;
  Grant TryChargeAlone(uint64_t bytes);
  Grant TakeBackAndTry(uint64_t bytes);
  Grant TryChargeBoth(uint64_t bytes);
  void CommitAlone(uint64_t bytes);
  void Uncharge(uint64_t bytes);
  void UnchargeAlone(uint64_t bytes);
  void Serve();
  WaitingLine& line() const { return parent_ != nullptr ? *parent_->line_ : *line_; }

  // The fields that every call uses, on a cache line of their own.
  alignas(64) std::atomic<uint64_t> charged_{0};
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> committed_{0};
  std::atomic<uint64_t> peak_{0};
  Account* const parent_;
  // For an account without a parent: its own waiters and its children's. Shared with threads of its book that are about to
  // serve them.
  const std::shared_ptr<WaitingLine> line_;
  std::atomic<uint32_t>* const
      waiters_;  // counts all waiters that a release here may serve: in the line, or in the book
  SpinLock child_lock_;  // with a parent: guards increases of charged_
  const bool borrows_;   // if so, only the book changes charged_

  // The fields that refusals and readers use.
  alignas(64) std::atomic<uint64_t> denied_{0};
  std::atomic<uint64_t> waiting_{0}, waiting_bytes_{0};
  // The requests that wait on this account; guarded by the line.
  struct Queue {
    Ticket *first = nullptr, *last = nullptr;
    uint64_t largest = 0;                         // an upper bound of the tickets' bytes
    Account *before = nullptr, *after = nullptr;  // neighbours in the list of accounts with waiters
  };
  Queue queue_;
  std::atomic<uint32_t> children_{0};

  std::shared_ptr<Source> source_;  // may be null

  // For an account in a LoanBook; only the book changes these.
  LoanBook* const book_;
  size_t place_ = SIZE_MAX;
  std::atomic<uint64_t> guarantee_;
  std::atomic<uint64_t> lent_{0}, loan_{0};
  std::atomic<uint32_t> wanted_{0};
};

// The path of every allocation and free is inline: it consists of atomic operations and little else.

inline Grant Account::TryChargeAlone(uint64_t bytes) {
  uint64_t charged = charged_.load(std::memory_order_relaxed);
  uint64_t left;
  do {
    const uint64_t limit = limit_.load(std::memory_order_relaxed);
    left = limit > charged ? limit - charged : 0;
    if (bytes > left) return {.granted = false, .left = left};
  } while (!charged_.compare_exchange_weak(charged, charged + bytes, std::memory_order_seq_cst,
                                           std::memory_order_relaxed));
  // If the limit was lowered in between, the thread that did so may have read the charge before this reservation.
  if (limit_.load(std::memory_order_seq_cst) < charged + bytes) [[unlikely]]
    return TakeBackAndTry(bytes);
  return {.granted = true, .left = left - bytes};
}

inline Grant Account::TryCharge(uint64_t bytes) {
  if (parent_ != nullptr) return TryChargeBoth(bytes);
  if (borrows_) return ChargeByBook(bytes);
  const Grant grant = TryChargeAlone(bytes);
  return grant || book_ == nullptr ? grant : ChargeByBook(bytes);
}

inline Grant Account::Reserve(uint64_t bytes) {
  const Grant grant = TryCharge(bytes);
  if (!grant) denied_.fetch_add(1, std::memory_order_relaxed);
  return grant;
}

inline void Account::CommitAlone(uint64_t bytes) {
  const uint64_t now = committed_.fetch_add(bytes, std::memory_order_acq_rel) + bytes;
  uint64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

inline void Account::Commit(uint64_t bytes) {
  CommitAlone(bytes);
  if (parent_ != nullptr) parent_->CommitAlone(bytes);
}

inline void Account::UnchargeAlone(uint64_t bytes) {
  if (borrows_) [[unlikely]] {
    UnchargeByBook(bytes);
  } else {
    charged_.fetch_sub(bytes);
  }
}

inline void Account::Uncharge(uint64_t bytes) {
  // Child before parent, the reverse of charging, so that the parent's charge always covers its children's.
  UnchargeAlone(bytes);
  if (parent_ != nullptr) parent_->UnchargeAlone(bytes);
  // Sequentially consistent with a waiter's arrival: either the waiter sees the bytes, or this thread sees the waiter.
  if (waiters_->load() != 0) [[unlikely]]
    Serve();
}

inline void Account::Cancel(uint64_t bytes) { Uncharge(bytes); }

inline void Account::Release(uint64_t bytes) {
  committed_.fetch_sub(bytes, std::memory_order_acq_rel);
  if (parent_ != nullptr) parent_->committed_.fetch_sub(bytes, std::memory_order_acq_rel);
  Uncharge(bytes);
}

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_LEDGER_H_
