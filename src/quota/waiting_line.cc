// SPDX-License-Identifier: Apache-2.0
#include "quota/waiting_line.h"

#include <algorithm>
#include <utility>

namespace gpushare::quota {

// The line's own first: whoever finds one among all finds the line as well.
void WaitingLine::Changed() {
  const uint32_t before = waiters_.load(), now = static_cast<uint32_t>(queue_.size());
  uint64_t least = queue_.empty() ? UINT64_MAX : queue_.front().bytes;
  for (const Waiter& waiter : queue_) {
    if (waiter.account != queue_.front().account) least = std::min(least, waiter.bytes);
  }
  least_.store(least);
  waiters_.store(now);
  if (all_ != nullptr) all_->fetch_add(now - before);
}

bool WaitingLine::Charge(Account& account, uint64_t bytes, base::Clock& clock, Time deadline,
                         std::shared_ptr<Ticket> ticket, absl::FunctionRef<Time()> look) {
  if (ticket == nullptr) ticket = std::make_shared<Ticket>();
  std::list<Waiter>::iterator place;
  {
    base::MutexLock lock(&mutex_);
    if (!ticket->waits()) return false;  // called away already
    place = queue_.insert(queue_.end(), {&account, bytes, &clock, ticket});
    Changed();
    account.waiting_.fetch_add(1);
    account.waiting_bytes_.fetch_add(bytes);
  }
  // What was released before the line above did not see this waiter.
  Serve();
  try {
    while (ticket->waits() && clock.Now() < deadline) {
      uint32_t told = Ticket::kToLook;
      ticket->state.compare_exchange_strong(told, Ticket::kWaiting);
      const Time next = std::min(look(), deadline);
      clock.Wait(ticket->state, Ticket::kWaiting, next, Nanos(0));
    }
  } catch (...) {
    if (Leave(account, place, *ticket)) {
      account.Cancel(bytes);
    } else {
      Serve();
    }
    throw;
  }
  if (Leave(account, place, *ticket)) return true;
  // Those behind a waiter that gave up may fit now.
  Serve();
  return false;
}

bool WaitingLine::Leave(Account& account, std::list<Waiter>::iterator place, Ticket& ticket) {
  base::MutexLock lock(&mutex_);
  if (ticket.state.load() == Ticket::kGranted) return true;  // and out of the queue
  if (ticket.waits()) ticket.state.store(Ticket::kLeft);
  account.waiting_bytes_.fetch_sub(place->bytes);
  queue_.erase(place);
  Changed();
  account.waiting_.fetch_sub(1);
  return false;
}

bool WaitingLine::CallAway(const std::shared_ptr<Ticket>& ticket, base::Clock& clock) {
  {
    base::MutexLock lock(&mutex_);
    if (!ticket->waits()) return false;
    ticket->state.store(Ticket::kCalledAway);
  }
  clock.Wake(ticket->state, 1);
  return true;
}

// Under the mutex, or a waiter's clock may go with it.
void WaitingLine::LookAgain() {
  const base::MutexLock lock(&mutex_);
  for (const Waiter& waiter : queue_) {
    uint32_t waiting = Ticket::kWaiting;
    if (waiter.ticket->state.compare_exchange_strong(waiting, Ticket::kToLook)) {
      waiter.clock->Wake(waiter.ticket->state, 1);
    }
  }
}

// Whoever releases memory comes by here, and it takes none of the host's: what is granted is not lost on the way.
void WaitingLine::Serve() {
  for (bool done = false; !done;) {
    std::list<Waiter> served;
    std::shared_ptr<Ticket> away;
    base::Clock* clock_of_away = nullptr;
    {
      base::MutexLock lock(&mutex_);
      auto at = queue_.begin();
      while (at != queue_.end() && away == nullptr) {
        const auto one = at++;
        if (!one->ticket->waits()) continue;  // called away, and about to leave
        if (one->bytes > one->account->most()) {
          // The limit was made smaller: no release can help. It leaves by itself.
          one->ticket->state.store(Ticket::kCalledAway);
          away = one->ticket;
          clock_of_away = one->clock;
          continue;
        }
        const bool has_one_before = std::any_of(queue_.begin(), one, [&](const Waiter& before) {
          return before.account == one->account && before.ticket->waits();
        });
        if (has_one_before || !one->account->TryCharge(one->bytes)) continue;
        one->ticket->state.store(Ticket::kGranted);
        one->account->waiting_.fetch_sub(1);
        one->account->waiting_bytes_.fetch_sub(one->bytes);
        served.splice(served.end(), queue_, one);
        Changed();
      }
      done = away == nullptr;
    }
    for (const Waiter& one : served) one.clock->Wake(one.ticket->state, 1);
    if (away != nullptr) clock_of_away->Wake(away->state, 1);
  }
}

}  // namespace gpushare::quota
