// SPDX-License-Identifier: Apache-2.0
#include "quota/waiting_line.h"

#include <algorithm>
#include <utility>
#include <vector>

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

void WaitingLine::Serve() {
  std::vector<std::pair<base::Clock*, std::shared_ptr<Ticket>>> served;
  {
    base::MutexLock lock(&mutex_);
    std::vector<const Account*> blocked;
    for (auto at = queue_.begin(); at != queue_.end();) {
      if (!at->ticket->waits()) {
        ++at;  // called away, and about to leave
      } else if (at->bytes > at->account->most()) {
        // The limit was made smaller: no release can help. It leaves by itself.
        at->ticket->state.store(Ticket::kCalledAway);
        served.emplace_back(at->clock, at->ticket);
        ++at;
      } else if (std::find(blocked.begin(), blocked.end(), at->account) == blocked.end() &&
                 at->account->TryCharge(at->bytes)) {
        at->ticket->state.store(Ticket::kGranted);
        at->account->waiting_.fetch_sub(1);
        at->account->waiting_bytes_.fetch_sub(at->bytes);
        served.emplace_back(at->clock, std::move(at->ticket));
        at = queue_.erase(at);
        Changed();
      } else {
        blocked.push_back(at->account);
        ++at;
      }
    }
  }
  for (const auto& [clock, ticket] : served) clock->Wake(ticket->state, 1);
}

}  // namespace gpushare::quota
