// SPDX-License-Identifier: Apache-2.0
#include "quota/loans.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "quota/waiting_line.h"

namespace gpushare::quota {

void LoanBook::Join(Account& account) {
  const std::lock_guard lock(lock_);
  MakeRoom();
  Add(account);
}

bool LoanBook::Join(Account& account, Account& rest) {
  const std::lock_guard lock(lock_);
  MakeRoom();
  const uint64_t guarantee = account.guarantee_.exchange(0);
  if (!Grow(account, guarantee, account.limit_.load(), rest)) {
    account.guarantee_.store(guarantee);
    return false;
  }
  Add(account);
  return true;
}

void LoanBook::MakeRoom() {
  if (accounts_.size() == accounts_.capacity()) accounts_.reserve(2 * accounts_.size() + 4);
}

void LoanBook::Add(Account& account) {
  if (account.borrows_) borrowers_.fetch_add(1);
  account.place_ = accounts_.size();
  accounts_.push_back(&account);
}

void LoanBook::Retire(Account& account, Account& heir) {
  const std::lock_guard lock(lock_);
  if (account.place_ >= accounts_.size() || accounts_[account.place_] != &account) return;
  if (account.borrows_) borrowers_.fetch_sub(1);
  accounts_.back()->place_ = account.place_;
  accounts_[account.place_] = accounts_.back();
  accounts_.pop_back();
  account.place_ = SIZE_MAX;
  const uint64_t lent = account.lent_.exchange(0);
  heir.charged_.fetch_add(lent);
  heir.lent_.fetch_add(lent);
  account.charged_.fetch_sub(lent);
}

// ---- With the lock held ----

uint64_t LoanBook::Available(const Account& but) const {
  uint64_t available = 0;
  for (const Account* account : accounts_) {
    if (account != &but && account->lends()) available += account->Room();
  }
  return available;
}

uint64_t LoanBook::Take(const Account& but, uint64_t bytes) {
  uint64_t taken = 0;
  for (Account* account : accounts_) {
    if (taken == bytes) break;
    if (account == &but || !account->lends()) continue;
    // Other threads may charge an account that does not borrow without the lock.
    uint64_t charged = account->charged_.load();
    uint64_t part;
    do {
      const uint64_t room = account->guarantee_.load() + account->loan_.load();
      part = std::min(Minus(room, charged), bytes - taken);
    } while (part != 0 && !account->charged_.compare_exchange_weak(charged, charged + part));
    account->lent_.fetch_add(part);
    taken += part;
  }
  return taken;
}

// Repays accounts that want their bytes back first, then those with a guarantee of a tenant. The first account, which belongs to
// no tenant, comes last.
void LoanBook::GiveBack(uint64_t bytes) {
  const auto give = [&](Account& account) {
    const uint64_t part = std::min(account.lent_.load(), bytes);
    if (part == 0) return;
    account.lent_.fetch_sub(part);
    account.charged_.fetch_sub(part);
    bytes -= part;
  };
  for (Account* account : accounts_) {
    if (!account->lends()) give(*account);
  }
  for (size_t i = accounts_.size(); bytes != 0 && i-- != 0;) give(*accounts_[i]);
}

void LoanBook::Repay(Account& account) {
  const uint64_t loan = account.loan_.load();
  const uint64_t part =
      std::min(loan, Minus(account.guarantee_.load() + loan, account.charged_.load()));
  if (part == 0) return;
  account.loan_.fetch_sub(part);
  loans_ -= part;
  GiveBack(part);
}

// The order of the steps ensures that neither account seems to hold more of its own than it does.
void LoanBook::PassOn(Account& from, Account& to, uint64_t bytes) {
  to.lent_.fetch_add(bytes);
  to.charged_.fetch_add(bytes);
  from.charged_.fetch_sub(bytes);
  from.lent_.fetch_sub(bytes);
}

bool LoanBook::Grow(Account& account, uint64_t guarantee, uint64_t most, Account& rest) {
  // What it holds beyond its guarantee is not a part of the rest already.
  const uint64_t held = Minus(account.charged_.load(), account.loan_.load());
  const uint64_t grows = std::max(guarantee, held) - std::max(account.guarantee_.load(), held);
  // Lower the giver's limit first: a reservation that saw the earlier limit is either visible here, or takes itself back.
  const uint64_t had = rest.guarantee_.load(), keeps = Minus(had, grows);
  rest.guarantee_.store(keeps);
  rest.limit_.store(keeps);
  const uint64_t charged = rest.charged_.load(), lent = rest.lent_.load();
  if (grows > had || (grows != 0 && Minus(charged, lent) > keeps)) {
    rest.guarantee_.store(had);
    rest.limit_.store(had);
    return false;
  }
  PassOn(rest, account, std::min({Minus(charged, keeps), lent, grows}));
  account.guarantee_.store(guarantee);
  account.limit_.store(most);
  // Cancel the loan of bytes that are now its own.
  const uint64_t both = std::min(account.loan_.load(), account.lent_.load());
  account.loan_.fetch_sub(both);
  account.charged_.fetch_sub(both);
  account.lent_.fetch_sub(both);
  loans_ -= both;
  Repay(account);
  return true;
}

void LoanBook::Shrink(Account& account, uint64_t guarantee, uint64_t most, Account& rest) {
  const uint64_t before =
      std::max(account.guarantee_.load(), Minus(account.charged_.load(), account.loan_.load()));
  account.guarantee_.store(guarantee);
  account.limit_.store(most);
  uint64_t over = Minus(account.charged_.load(), guarantee + account.loan_.load());
  const uint64_t lent = std::min(over, account.lent_.load());
  PassOn(account, rest, lent);
  over -= lent;
  if (account.borrows_) {
    rest.charged_.fetch_add(over);
    rest.lent_.fetch_add(over);
    account.loan_.fetch_add(over);
    loans_ += over;
    over = 0;
  }
  const uint64_t gets = Minus(before, guarantee + over);
  rest.guarantee_.fetch_add(gets);
  rest.limit_.fetch_add(gets);
}

// ---- Without the lock ----

bool LoanBook::SetLimits(Account& account, uint64_t guarantee, uint64_t most, Account& rest) {
  {
    const std::lock_guard lock(lock_);
    if (guarantee < account.guarantee_.load()) {
      Shrink(account, guarantee, most, rest);
    } else if (!Grow(account, guarantee, most, rest)) {
      return false;
    }
  }
  if (waiters_.load() != 0) account.Serve();
  return true;
}

// Serves the lines by their oldest waiter, a few at a time, without using host memory. In each line the waiters that arrived
// before the oldest one of the next line are served first; the rest of the line is served after that. The shared pointers keep
// a line alive whose account is destroyed meanwhile; it has no waiters.
void LoanBook::Serve() {
  struct Found {
    uint64_t oldest = UINT64_MAX;
    std::shared_ptr<WaitingLine> line;
  };
  constexpr size_t kAtOnce = 8;
  for (uint64_t from = 0;;) {
    std::array<Found, kAtOnce> found;  // sorted by `oldest`
    size_t count = 0;
    {
      const std::lock_guard lock(lock_);
      for (const Account* account : accounts_) {
        const uint64_t oldest = account->has_waiters() ? account->line_->oldest() : UINT64_MAX;
        if (oldest == UINT64_MAX || oldest <= from ||
            (count == kAtOnce && oldest > found.back().oldest)) {
          continue;
        }
        if (count < kAtOnce) ++count;
        size_t place = count - 1;
        for (; place > 0 && found[place - 1].oldest > oldest; --place) {
          std::swap(found[place], found[place - 1]);
        }
        found[place] = {oldest, account->line_};
      }
    }
    for (size_t i = 0; i < count; ++i) {
      const bool last = i + 1 == count;
      found[i].line->Serve(last ? found[i].oldest + 1 : found[i + 1].oldest);
    }
    if (count < kAtOnce) break;
    from = found.back().oldest;
  }
  for (size_t place = 0;;) {
    std::shared_ptr<WaitingLine> line;
    {
      const std::lock_guard lock(lock_);
      while (place < accounts_.size() && !accounts_[place]->has_waiters()) ++place;
      if (place >= accounts_.size()) return;
      line = accounts_[place++]->line_;
    }
    line->Serve();
  }
}

// Calls the host's allocator only without the lock.
void LoanBook::AddWaiters(const Account& but, Waiters* waiters) const {
  std::vector<std::shared_ptr<WaitingLine>>& lines = waiters->lines_;
  const size_t before = lines.size();
  for (size_t needs = 0;;) {
    lines.reserve(before + needs);
    needs = 0;
    const std::lock_guard lock(lock_);
    for (const Account* account : accounts_) {
      if (account == &but || !account->has_waiters()) continue;
      ++needs;
      if (before + needs <= lines.capacity()) lines.push_back(account->line_);
    }
    if (before + needs <= lines.capacity()) return;
    lines.resize(before);
  }
}

void LoanBook::SetLimit(Account& account, uint64_t limit) {
  const std::lock_guard lock(lock_);
  account.guarantee_.store(limit);
  account.limit_.store(limit);
  const uint64_t lent = account.lent_.load();
  const uint64_t over = std::min(Minus(account.charged_.load(), limit), lent);
  const uint64_t moved = Take(account, over);
  account.charged_.fetch_sub(moved);
  account.lent_.fetch_sub(moved);
}

Grant LoanBook::Charge(Account& account, uint64_t bytes) {
  const std::lock_guard lock(lock_);
  for (;;) {
    uint64_t charged = account.charged_.load();
    const uint64_t lent = account.lent_.load();
    const uint64_t left = Minus(account.limit_.load(), Minus(charged, lent));
    if (bytes > left) {
      Repay(account);  // gives back what was borrowed in vain
      return {.granted = false, .left = left};
    }
    const uint64_t room = account.Room();
    if (bytes > room) {
      const uint64_t lacks = bytes - room;
      const uint64_t available = lent == 0 && !account.borrows_ ? 0 : Available(account);
      if (lacks > available || (!account.borrows_ && lacks > lent)) {
        Repay(account);
        return {.granted = false, .left = std::min(left, room + available)};
      }
      // First move what it has lent to others; borrow only beyond that.
      const uint64_t taken = Take(account, lacks);
      const uint64_t moved = std::min(taken, account.borrows_ ? lent : taken);
      account.lent_.fetch_sub(moved);
      account.charged_.fetch_sub(moved);
      account.loan_.fetch_add(taken - moved);
      loans_ += taken - moved;
      continue;
    }
    if (account.charged_.compare_exchange_strong(charged, charged + bytes)) {
      return {.granted = true, .left = std::min(left, room) - bytes};
    }
  }
}

void LoanBook::Uncharge(Account& account, uint64_t bytes) {
  const std::lock_guard lock(lock_);
  account.charged_.fetch_sub(bytes);
  Repay(account);
}

void LoanBook::Overdraw(Account& account, uint64_t bytes) {
  const std::lock_guard lock(lock_);
  account.charged_.fetch_add(bytes);
}

uint64_t LoanBook::WithoutLoan(const Account& account) const {
  const std::lock_guard lock(lock_);
  return Minus(account.own(), account.loan());
}

uint64_t LoanBook::Over(const Account& account) const {
  const std::lock_guard lock(lock_);
  return account.Over();
}

uint64_t LoanBook::Left(const Account& account) {
  const std::lock_guard lock(lock_);
  const uint64_t own = Minus(account.charged_.load(), account.lent_.load());
  const uint64_t left = Minus(account.limit_.load(), own);
  // Count what it has lent: it can be moved to others, or borrowers can be asked for it.
  const uint64_t room = account.Room() + account.lent_.load();
  return account.borrows_ ? std::min(left, room + Available(account)) : std::min(left, room);
}

uint64_t LoanBook::Reachable(const Account& account) {
  const std::lock_guard lock(lock_);
  const uint64_t own = Minus(account.charged_.load(), account.lent_.load());
  const uint64_t available = Available(account);
  const uint64_t others = account.borrows_ ? available : std::min(available, account.lent_.load());
  return std::min(Minus(account.limit_.load(), own), account.Room() + others);
}

absl::Status LoanBook::CheckInvariants() const {
  const std::lock_guard lock(lock_);
  uint64_t lent = 0, loans = 0;
  for (const Account* account : accounts_) {
    if (absl::Status status = account->CheckInvariants(); !status.ok()) return status;
    lent += account->lent_.load();
    loans += account->loan_.load();
    const uint64_t held = account->charged_.load();
    const uint64_t may = account->guarantee_.load() + account->loan_.load();
    // It may hold more after its limits were lowered.
    if (account->loan_.load() != 0 && held < may) {
      return absl::InternalError(absl::StrCat("account: ", held, " bytes held with a loan, ", may,
                                              " guaranteed and borrowed"));
    }
  }
  if (lent != loans_ || loans > loans_) {
    return absl::InternalError(absl::StrCat("loans: ", lent, " bytes lent, ", loans_, " borrowed"));
  }
  return absl::OkStatus();
}

}  // namespace gpushare::quota
