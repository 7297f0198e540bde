// SPDX-License-Identifier: Apache-2.0
// What a tenant may hold of a GPU's memory, and what it holds.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Account> account, Account::Create(8ull << 30));
//   const Grant grant = account->Reserve(bytes);
//   if (!grant) return absl::ResourceExhaustedError(...grant.left...);
//   if (driver.MemAlloc(&pointer, bytes) != kSuccess) { account->Cancel(bytes); ... }
//   account->Commit(bytes);
//   ...
//   account->Release(bytes);   // after the driver has freed it
//
// Bytes are charged from Reserve() to Cancel() or Release(): charged = reserved + committed. Every byte
// reserved is cancelled or committed exactly once, every byte committed is released exactly once;
// CheckInvariants() finds most breaches.
//
// Guarantees, with any number of threads:
//   * charged never exceeds the limit that the reservation saw, not even for an instant; but for Overdraw();
//   * a request that does not fit never makes one fail that does: it changes nothing but `denied`.
//     (Adding first and taking back has that race.)
//   * a grant makes no system call, and its cost does not depend on what is charged already.
//
// Live limits: SetLimit() below what is charged takes nothing away. What is held stays held and usable;
// every later reservation is refused (of any size but 0) until releases bring the charge under the new
// limit far enough. A reservation that runs concurrently with SetLimit() sees one of the two limits; whoever lowers the
// limit of an account without a parent and looks at its charge afterwards finds every reservation that the lower one
// would have refused, or it is refused still. (It takes itself back then, the one case in which the charge is too
// high for a moment.)
//
// Budgets inside budgets: a child's bytes are charged to its parent as well, and both limits hold. One
// level is implemented; a parent that has a parent is Unimplemented.
//
// Soft limits: an account of a LoanBook lends what it does not use to those that may borrow (loans.h). What it has lent
// is part of its charge.
//
// Units: bytes. Threading: thread-safe. An account without a parent is lock-free; one with a parent has
// a spin lock of its own, since two counters change together. An account outlives its children and
// every entry of a PointerTable that names it.
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

// What is left of `a`, if anything is.
inline uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// What a reservation got.
struct [[nodiscard]] Grant {
  bool granted = false;
  uint64_t left = 0;  // free under the tightest limit: after this grant, or when it was refused

  explicit operator bool() const { return granted; }
};

// One account's figures. Read one after the other, each exact at its moment.
struct AccountUsage {
  uint64_t limit = 0;
  uint64_t borrowed = 0;   // of what it holds, beyond what it is guaranteed
  uint64_t lent = 0;       // to others, of what it is guaranteed
  uint64_t reserved = 0;   // asked of the driver, not yet answered
  uint64_t committed = 0;  // held
  uint64_t peak = 0;       // highest `committed` so far
  uint64_t denied = 0;     // reservations refused, also those that waited in vain
  uint64_t waiting = 0;    // reservations waiting now
};

class Account;
class LoanBook;
class WaitingLine;

// Who waits for what an account gives back, for somebody who has no account at hand when it comes free.
class Waiters {
 public:
  // Has them look at once. From any thread, also one that may not call the driver.
  void LookAgain() const;

 private:
  friend class LoanBook;
  friend class Account;

  std::vector<std::shared_ptr<WaitingLine>> lines_;
};

// A place in a waiting line, for a waiter whom something else may serve as well: see CallAway().
struct Ticket {
  enum State : uint32_t { kWaiting, kToLook, kGranted, kCalledAway, kLeft };
  std::atomic<uint32_t> state{kWaiting};

  bool waits() const {
    const uint32_t now = state.load();
    return now == kWaiting || now == kToLook;
  }

 private:
  friend class WaitingLine;

  // Of one that is in line, and the line's to change.
  Account* account_ = nullptr;
  uint64_t bytes_ = 0, number_ = 0;
  base::Clock* clock_ = nullptr;
  Ticket *before_ = nullptr, *after_ = nullptr;
  std::shared_ptr<Ticket> self_;  // while it is in line; then the next that is to be woken
};

class Account {
 public:
  // `limit` in bytes, kUnlimited for none. `parent` may be null. Unimplemented when the parent has a
  // parent itself.
  static absl::StatusOr<std::unique_ptr<Account>> Create(uint64_t limit, Account* parent = nullptr);
  // One that lends what it does not use of its guarantee once it has joined the book, and, with `most`, borrows
  // beyond it.
  static absl::StatusOr<std::unique_ptr<Account>> Create(uint64_t guarantee,
                                                         std::optional<uint64_t> most,
                                                         LoanBook& book);
  ~Account();
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  Grant Reserve(uint64_t bytes);
  // As Reserve(), but a refusal is the caller's to count (CountDenied), since it may ask again.
  Grant TryReserve(uint64_t bytes) { return TryCharge(bytes); }

  // As Reserve(), but waits for releases until `deadline`. Waiters of one account are served in the
  // order in which they came: a small request does not overtake a large one that is waiting, except
  // through Reserve(), which never queues. Refused at once when `bytes` is over the limit as such,
  // or comes to be.
  // With a new `ticket` another thread may end the wait, and a refusal is the caller's to count, since it may
  // ask again.
  Grant ReserveBefore(uint64_t bytes, base::Clock& clock, Time deadline,
                      const std::shared_ptr<Ticket>& ticket = nullptr);
  // While it waits it calls `look`, without any lock, at once and again at the time that it returns; which
  // may release memory, or call the ticket away.
  Grant ReserveBefore(uint64_t bytes, base::Clock& clock, Time deadline,
                      const std::shared_ptr<Ticket>& ticket, absl::FunctionRef<Time()> look);
  // Ends the wait of the ticket's holder, which is refused. False: it has its grant, or has left.
  // A holder that has not come to wait yet is refused when it comes.
  bool CallAway(const std::shared_ptr<Ticket>& ticket, base::Clock& clock);
  // Held already, and nobody can give them back now: charged and committed past every limit. Nothing more is granted
  // until releases have made room, as after SetLimit() below what is charged.
  void Overdraw(uint64_t bytes);
  bool IsOverdrawn() const {
    return own() > limit() || (book_ != nullptr && Over() > 0) ||
           (parent_ != nullptr && parent_->IsOverdrawn());
  }

  void Commit(uint64_t bytes);   // reserved bytes are now held
  void Cancel(uint64_t bytes);   // reserved bytes were not taken after all
  void Release(uint64_t bytes);  // held bytes are free again

  void CountDenied() { denied_.fetch_add(1, std::memory_order_relaxed); }
  bool has_waiters() const;  // here or in the family
  // Whether what is given back here may be what somebody waits for: of the family, or who has lent it.
  bool is_awaited() const { return waiters_->load() != 0 && (has_waiters() || root().loan() != 0); }
  // Those who are in line now, and those of the family who come yet.
  Waiters AwaitedBy() const;
  uint64_t waiting_bytes() const { return waiting_bytes_.load(); }  // what they wait for, here

  // Serves who waits, as a release does: for what comes free without a release of an account of the book.
  void Poll() { Serve(); }

  // Of a share that several processes have in common: where more of it comes from. Before the account is used.
  void SetSource(std::shared_ptr<Source> source) { source_ = std::move(source); }
  // Its own, or its parent's.
  const std::shared_ptr<Source>& source() const {
    return parent_ != nullptr ? parent_->source_ : source_;
  }
  // Asks the source for so much that `bytes` fit. Whether it raised the limit; without a source: no. May wait, as the
  // source does.
  bool Grow(uint64_t bytes, Time deadline = kNever) {
    if (parent_ != nullptr) return parent_->Grow(bytes, deadline);
    return source_ != nullptr && source_->GetRoom(*this, bytes, deadline);
  }
  // What may be held at most, and what is left of that: the source's, where there is one.
  uint64_t most() const {
    if (parent_ != nullptr) return std::min(limit(), parent_->most());
    return source_ != nullptr ? source_->Limit() : limit();
  }

  void SetLimit(uint64_t limit);  // of one in a LoanBook that borrows, or comes and goes: see there
  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  uint64_t charged() const { return charged_.load(std::memory_order_relaxed); }
  uint64_t guarantee() const { return guarantee_.load(std::memory_order_relaxed); }
  uint64_t lent() const { return lent_.load(std::memory_order_relaxed); }
  uint64_t loan() const { return loan_.load(std::memory_order_relaxed); }
  // What it holds itself.
  uint64_t own() const {
    const uint64_t charged = charged_.load(std::memory_order_relaxed), lent = this->lent();
    return charged > lent ? charged - lent : 0;
  }
  // What may be reserved without anything being lent or given back.
  uint64_t Room() const {
    const uint64_t may = guarantee_.load() + loan_.load(), charged = charged_.load();
    return may > charged ? may - charged : 0;
  }
  uint64_t Left() const;  // what may be reserved at most, if all that is lent comes back
  // As Left(), but of what it has lent only what others have room for now.
  uint64_t Reachable() const;
  uint64_t Over() const {  // held beyond what it may, since its limits were lowered
    const uint64_t may = guarantee_.load() + loan_.load(), charged = charged_.load();
    return charged > may ? charged - may : 0;
  }
  bool borrows() const { return borrows_; }
  Account* parent() const { return parent_; }
  // Its parent, or itself: whose guarantee it is, who borrows and lends.
  Account& root() { return parent_ != nullptr ? *parent_ : *this; }
  const Account& root() const { return parent_ != nullptr ? *parent_ : *this; }

  AccountUsage Usage() const;

  // Internal when the figures contradict each other. Exact while no other thread uses the account.
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

  // What every call touches, on a line of its own.
  alignas(64) std::atomic<uint64_t> charged_{0};
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> committed_{0};
  std::atomic<uint64_t> peak_{0};
  Account* const parent_;
  // Of a root: its own waiters and its children's. Shared with whoever of its book is about to serve them.
  const std::shared_ptr<WaitingLine> line_;
  std::atomic<uint32_t>* const
      waiters_;          // all whom a release here may serve: of the family's line, or of the book
  SpinLock child_lock_;  // with a parent: increases of charged_
  const bool borrows_;   // then every change of charged_ is the book's

  // What refusals and readers touch.
  alignas(64) std::atomic<uint64_t> denied_{0};
  std::atomic<uint64_t> waiting_{0}, waiting_bytes_{0};
  // Of those who wait here: the line's.
  struct Queue {
    Ticket *first = nullptr, *last = nullptr;
    uint64_t largest = 0;                         // no ticket is for more
    Account *before = nullptr, *after = nullptr;  // others that have some
  };
  Queue queue_;
  std::atomic<uint32_t> children_{0};

  std::shared_ptr<Source> source_;  // null: none

  // Of one in a LoanBook, and its to change.
  LoanBook* const book_;
  size_t place_ = SIZE_MAX;
  std::atomic<uint64_t> guarantee_;
  std::atomic<uint64_t> lent_{0}, loan_{0};
  std::atomic<uint32_t> wanted_{0};
};

// The path of every allocation and free, inline: between the atomic operations that it consists of
// there is little else.

inline Grant Account::TryChargeAlone(uint64_t bytes) {
  uint64_t charged = charged_.load(std::memory_order_relaxed);
  uint64_t left;
  do {
    const uint64_t limit = limit_.load(std::memory_order_relaxed);
    left = limit > charged ? limit - charged : 0;
    if (bytes > left) return {.granted = false, .left = left};
  } while (!charged_.compare_exchange_weak(charged, charged + bytes, std::memory_order_seq_cst,
                                           std::memory_order_relaxed));
  // The limit was lowered in between: who did that may have looked at the charge before.
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
  // Child before parent, the reverse of charging: the parent's charge covers its children's always.
  UnchargeAlone(bytes);
  if (parent_ != nullptr) parent_->UnchargeAlone(bytes);
  // Sequentially consistent with a waiter's arrival: either it sees the bytes, or it is seen here.
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
