// SPDX-License-Identifier: Apache-2.0
#include "quota/waiting_line.h"

#include <algorithm>
#include <utility>

namespace gpushare::quota {

// ---- The queues ----

void WaitingLine::Link(Account& account, Account* place) {
  Account::Queue& queue = account.queue_;
  queue.before = place;
  queue.after = place != nullptr ? place->queue_.after : first_;
  (queue.before != nullptr ? queue.before->queue_.after : first_) = &account;
  (queue.after != nullptr ? queue.after->queue_.before : last_) = &account;
}

void WaitingLine::Unlink(Account& account) {
  const Account::Queue& queue = account.queue_;
  (queue.before != nullptr ? queue.before->queue_.after : first_) = queue.after;
  (queue.after != nullptr ? queue.after->queue_.before : last_) = queue.before;
}

// Updates the least after an account's first waiter, which wanted `gone` bytes, has left. The least can only change if it was
// that one. The search ends at another waiter for the same number of bytes.
void WaitingLine::FindLeast(uint64_t gone) {
  if (gone > least_.load()) return;
  uint64_t least = UINT64_MAX;
  for (const Account* one = first_; one != nullptr && least > gone; one = one->queue_.after) {
    least = std::min(least, one->queue_.first->bytes_);
  }
  least_.store(least);
}

void WaitingLine::FindOldest() {
  oldest_.store(first_ != nullptr ? first_->queue_.first->number_ : UINT64_MAX);
}

// The line's own count is increased first, so that a thread that sees the common count also sees the line's.
void WaitingLine::Append(const std::shared_ptr<Ticket>& ticket) {
  Account& account = *ticket->account_;
  Account::Queue& queue = account.queue_;
  ticket->number_ = came_.fetch_add(1) + 1;
  ticket->self_ = ticket;
  ticket->before_ = queue.last;
  ticket->after_ = nullptr;
  (queue.last != nullptr ? queue.last->after_ : queue.first) = ticket.get();
  queue.last = ticket.get();
  if (queue.first == ticket.get()) {
    queue.largest = 0;
    Link(account, last_);
    FindOldest();
    least_.store(std::min(least_.load(), ticket->bytes_));
  }
  queue.largest = std::max(queue.largest, ticket->bytes_);
  waiters_.fetch_add(1);
  if (all_ != nullptr) all_->fetch_add(1);
  account.waiting_.fetch_add(1);
  account.waiting_bytes_.fetch_add(ticket->bytes_);
}

std::shared_ptr<Ticket> WaitingLine::Remove(Ticket& ticket) {
  Account& account = *ticket.account_;
  Account::Queue& queue = account.queue_;
  const bool was_first = queue.first == &ticket;
  (ticket.before_ != nullptr ? ticket.before_->after_ : queue.first) = ticket.after_;
  (ticket.after_ != nullptr ? ticket.after_->before_ : queue.last) = ticket.before_;
  if (was_first) {
    // The account's next waiter may be younger than those of the following accounts, which then come first.
    Account* place = queue.after;
    Account* const before = queue.before;
    const bool stays = queue.first != nullptr &&
                       (place == nullptr || queue.first->number_ < place->queue_.first->number_);
    if (!stays) {
      Unlink(account);
      if (queue.first != nullptr) {
        Account* behind = before;
        for (; place != nullptr && place->queue_.first->number_ < queue.first->number_;
             place = place->queue_.after) {
          behind = place;
        }
        Link(account, behind);
      }
    }
    if (queue.first != nullptr) least_.store(std::min(least_.load(), queue.first->bytes_));
    FindLeast(ticket.bytes_);
    FindOldest();
  }
  waiters_.fetch_sub(1);
  if (all_ != nullptr) all_->fetch_sub(1);
  account.waiting_.fetch_sub(1);
  account.waiting_bytes_.fetch_sub(ticket.bytes_);
  return std::move(ticket.self_);
}

// ---- Waiting ----

bool WaitingLine::Charge(Account& account, uint64_t bytes, base::Clock& clock, Time deadline,
                         std::shared_ptr<Ticket> ticket, absl::FunctionRef<Time()> look) {
  if (ticket == nullptr) ticket = std::make_shared<Ticket>();
  {
    base::MutexLock lock(&mutex_);
    if (!ticket->waits()) return false;  // it was called away before
    ticket->account_ = &account;
    ticket->bytes_ = bytes;
    ticket->clock_ = &clock;
    Append(ticket);
  }
  // A release before this did not see the waiter, so serve once.
  Serve();
  try {
    while (ticket->waits() && clock.Now() < deadline) {
      uint32_t told = Ticket::kToLook;
      ticket->state.compare_exchange_strong(told, Ticket::kWaiting);
      const Time next = std::min(look(), deadline);
      clock.Wait(ticket->state, Ticket::kWaiting, next, Nanos(0));
    }
  } catch (...) {
    if (Leave(*ticket)) {
      account.Cancel(bytes);
    } else {
      Serve();
    }
    throw;
  }
  if (Leave(*ticket)) return true;
  // Waiters behind one that gave up may fit now.
  Serve();
  return false;
}

bool WaitingLine::Leave(Ticket& ticket) {
  base::MutexLock lock(&mutex_);
  if (ticket.state.load() == Ticket::kGranted) return true;
  if (ticket.waits()) {
    ticket.state.store(Ticket::kLeft);
    Remove(ticket);  // the caller has another reference
  }
  return false;
}

bool WaitingLine::CallAway(const std::shared_ptr<Ticket>& ticket, base::Clock& clock) {
  {
    base::MutexLock lock(&mutex_);
    if (!ticket->waits()) return false;
    ticket->state.store(Ticket::kCalledAway);
    if (ticket->self_ != nullptr) Remove(*ticket);  // else it is not in line yet
  }
  clock.Wake(ticket->state, 1);
  return true;
}

// ---- Serving ----

// Wakes under the mutex, since a waiter's clock may be destroyed after it has left.
void WaitingLine::LookAgain() {
  const base::MutexLock lock(&mutex_);
  for (const Account* account = first_; account != nullptr; account = account->queue_.after) {
    for (Ticket* one = account->queue_.first; one != nullptr; one = one->after_) {
      uint32_t waiting = Ticket::kWaiting;
      if (one->state.compare_exchange_strong(waiting, Ticket::kToLook)) {
        one->clock_->Wake(one->state, 1);
      }
    }
  }
}

// Refuses waiters for more than a lowered limit: no release can satisfy them.
void WaitingLine::CallAwayTooLarge(Account& account) {
  const uint64_t most = account.most();
  if (account.queue_.largest <= most) return;
  uint64_t largest = 0;
  for (Ticket* one = account.queue_.first; one != nullptr;) {
    Ticket* const next = one->after_;
    if (one->bytes_ > most) {
      one->state.store(Ticket::kCalledAway);
      const std::shared_ptr<Ticket> away = Remove(*one);
      away->clock_->Wake(away->state, 1);
    } else {
      largest = std::max(largest, one->bytes_);
    }
    one = next;
  }
  account.queue_.largest = largest;
}

// Runs on threads that release memory. It uses no host memory, so a grant cannot get lost.
void WaitingLine::Serve(uint64_t before) {
  std::shared_ptr<Ticket> served;
  {
    base::MutexLock lock(&mutex_);
    Ticket* last = nullptr;  // the last one in `served`
    for (Account* account = first_; account != nullptr;) {
      Account* const next = account->queue_.after;
      CallAwayTooLarge(*account);
      Ticket* const one = account->queue_.first;
      if (one != nullptr && one->number_ >= before) {
        account = next;  // go on, for waiters that have become too large
        continue;
      }
      if (one == nullptr || (next != nullptr && next->queue_.first->number_ < one->number_)) {
        account = next;  // it moved back in the list, and is visited later
        continue;
      }
      if (!account->TryCharge(one->bytes_)) {
        account = next;
        continue;
      }
      one->state.store(Ticket::kGranted);
      // Each served ticket refers to the next one until it is woken.
      std::shared_ptr<Ticket> self = Remove(*one);
      (last != nullptr ? last->self_ : served) = std::move(self);
      last = one;
      const Ticket* const then = account->queue_.first;
      const bool stays =
          then != nullptr && (next == nullptr || then->number_ < next->queue_.first->number_);
      if (!stays) account = next;
    }
  }
  while (served != nullptr) {
    std::shared_ptr<Ticket> next = std::move(served->self_);
    served->clock_->Wake(served->state, 1);
    served = std::move(next);
  }
}

}  // namespace gpushare::quota
