// SPDX-License-Identifier: Apache-2.0
#include "quota/ledger.h"

#include <algorithm>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "quota/loans.h"
#include "quota/waiting_line.h"

namespace gpushare::quota {

absl::StatusOr<std::unique_ptr<Account>> Account::Create(uint64_t limit, Account* parent) {
  if (parent != nullptr && parent->parent_ != nullptr) {
    return absl::UnimplementedError(
        "budgets inside budgets are one level deep; the parent has a parent");
  }
  return std::unique_ptr<Account>(new Account(limit, parent, nullptr, /*borrows=*/false));
}

absl::StatusOr<std::unique_ptr<Account>> Account::Create(uint64_t guarantee,
                                                         std::optional<uint64_t> most,
                                                         LoanBook& book) {
  if (most.value_or(guarantee) < guarantee) {
    return absl::InvalidArgumentError(
        absl::StrCat("account: ", *most, " bytes at most, but ", guarantee, " guaranteed"));
  }
  std::unique_ptr<Account> account(
      new Account(most.value_or(guarantee), nullptr, &book, most.has_value()));
  account->guarantee_.store(guarantee);
  return account;
}

Account::Account(uint64_t limit, Account* parent, LoanBook* book, bool borrows)
    : limit_(limit),
      parent_(parent),
      line_(parent == nullptr
                ? std::make_shared<WaitingLine>(book == nullptr ? nullptr : &book->waiters_,
                                                book == nullptr ? nullptr : &book->came_)
                : nullptr),
      waiters_(line().told()),
      borrows_(borrows),
      book_(book),
      guarantee_(limit) {
  if (parent_ != nullptr) parent_->children_.fetch_add(1);
}

Account::~Account() {
  if (parent_ != nullptr) parent_->children_.fetch_sub(1);
}

Grant Account::TryChargeBoth(uint64_t bytes) {
  // Only the holder of the lock increases this account's charge, so what fits now still fits when it is added. The parent is
  // charged in between, in one step that either succeeds or changes nothing.
  const std::lock_guard lock(child_lock_);
  uint64_t left =
      Minus(limit_.load(std::memory_order_relaxed), charged_.load(std::memory_order_relaxed));
  if (bytes > left) return {.granted = false, .left = left};
  const Grant parents = parent_->TryCharge(bytes);
  if (parents) {
    charged_.fetch_add(bytes, std::memory_order_acq_rel);
    left -= bytes;
  }
  return {.granted = parents.granted, .left = std::min(left, parents.left)};
}

void Account::Overdraw(uint64_t bytes) {
  if (parent_ != nullptr) {
    const std::lock_guard lock(child_lock_);
    parent_->Overdraw(bytes);
    charged_.fetch_add(bytes);
  } else if (borrows_) {
    book_->Overdraw(*this, bytes);
  } else {
    charged_.fetch_add(bytes);
  }
  CommitAlone(bytes);
}

Grant Account::TakeBackAndTry(uint64_t bytes) {
  charged_.fetch_sub(bytes);
  return TryChargeAlone(bytes);
}

Grant Account::ChargeByBook(uint64_t bytes) { return book_->Charge(*this, bytes); }

void Account::UnchargeByBook(uint64_t bytes) { book_->Uncharge(*this, bytes); }

uint64_t Account::Left() const { return borrows_ ? book_->Left(*this) : Minus(limit(), own()); }

uint64_t Account::Reachable() const {
  return book_ != nullptr ? book_->Reachable(*this) : Minus(limit(), own());
}

bool Account::has_waiters() const { return line().waiters() != 0; }

// A request for more than the guarantee does not stop the account from lending: two such accounts would wait for each other.
bool Account::lends() const {
  if (wanted_.load() != 0) return false;
  const uint64_t least = line().least();
  return least == UINT64_MAX || least > Minus(guarantee_.load(), own());
}

void Account::Serve() {
  if (root().book_ != nullptr) {
    root().book_->Serve();
  } else {
    line().Serve();
  }
}

Grant Account::ReserveBefore(uint64_t bytes, base::Clock& clock, Time deadline,
                             const std::shared_ptr<Ticket>& ticket) {
  return ReserveBefore(bytes, clock, deadline, ticket, [] { return kNever; });
}

Grant Account::ReserveBefore(uint64_t bytes, base::Clock& clock, Time deadline,
                             const std::shared_ptr<Ticket>& ticket,
                             absl::FunctionRef<Time()> look) {
  Grant grant;
  const bool possible = bytes <= most();
  if (possible) {
    grant.granted = line().Charge(*this, bytes, clock, deadline, ticket, look);
    if (waiters_->load() != 0) Serve();  // it lends again
  }
  // After a refusal report what could have been reserved: the lent bytes did not come back.
  const auto left_of = [&](const Account& one) {
    return grant.granted ? one.Left() : one.Reachable();
  };
  grant.left = left_of(*this);
  if (parent_ != nullptr) grant.left = std::min(grant.left, left_of(*parent_));
  if (!grant.granted && ticket == nullptr) CountDenied();
  return grant;
}

void Waiters::LookAgain() const {
  for (const std::shared_ptr<WaitingLine>& line : lines_) line->LookAgain();
}

Waiters Account::AwaitedBy() const {
  Waiters waiters;
  waiters.lines_.push_back(root().line_);
  if (root().loan() != 0) root().book_->AddWaiters(root(), &waiters);
  return waiters;
}

bool Account::CallAway(const std::shared_ptr<Ticket>& ticket, base::Clock& clock) {
  return line().CallAway(ticket, clock);
}

void Account::SetLimit(uint64_t limit) {
  if (book_ != nullptr) {
    book_->SetLimit(*this, limit);
  } else {
    limit_.store(limit);
  }
  if (waiters_->load() != 0) Serve();
}

AccountUsage Account::Usage() const {
  AccountUsage usage;
  usage.limit = limit();
  usage.committed = committed_.load(std::memory_order_acquire);
  usage.borrowed = loan();
  usage.lent = lent();
  usage.reserved = Minus(own(), usage.committed);
  usage.peak = std::max(peak_.load(std::memory_order_relaxed), usage.committed);
  usage.denied = denied_.load(std::memory_order_relaxed);
  usage.waiting = waiting_.load(std::memory_order_relaxed);
  return usage;
}

absl::Status Account::CheckInvariants() const {
  const uint64_t charged = own();
  const uint64_t committed = committed_.load();
  const uint64_t peak = peak_.load();
  // A byte that is released twice wraps a counter around.
  if (committed > charged) {
    return absl::InternalError(
        absl::StrCat("account: ", committed, " bytes committed, but only ", charged, " charged"));
  }
  if (charged > (UINT64_MAX >> 1) && limit() != kUnlimited) {
    return absl::InternalError(absl::StrCat("account: charge below zero (", charged, ")"));
  }
  if (lent_.load() > charged_.load() || (loan_.load() != 0 && !borrows_)) {
    return absl::InternalError(absl::StrCat("account: ", lent_.load(), " bytes lent of ",
                                            charged_.load(), " charged, ", loan_.load(),
                                            " borrowed"));
  }
  if (peak < committed) {
    return absl::InternalError(
        absl::StrCat("account: peak ", peak, " below committed ", committed));
  }
  if (parent_ != nullptr && parent_->own() < charged) {
    return absl::InternalError(absl::StrCat("account: parent charged ", parent_->charged_.load(),
                                            ", less than its child's ", charged));
  }
  return absl::OkStatus();
}

}  // namespace gpushare::quota
