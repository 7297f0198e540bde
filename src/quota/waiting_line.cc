// SPDX-License-Identifier: Apache-2.0
#include "quota/waiting_line.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace gpushare::quota {

bool WaitingLine::Charge(Account& account, uint64_t bytes, base::Clock& clock, Time deadline) {
  const auto waiter = std::make_shared<Waiter>(account, bytes, clock);
  {
    base::MutexLock lock(&mutex_);
    queue_.push_back(waiter);
    waiters_.fetch_add(1);
    account.waiting_.fetch_add(1);
  }
  // What was released before the line above did not see this waiter.
  Serve();
  while (waiter->granted.load() == 0 && clock.Now() < deadline) {
    clock.Wait(waiter->granted, 0, deadline, Nanos(0));
  }
  {
    base::MutexLock lock(&mutex_);
    if (waiter->granted.load() != 0) return true;
    queue_.remove(waiter);
    waiters_.fetch_sub(1);
    account.waiting_.fetch_sub(1);
  }
  // Those behind a waiter that gave up may fit now.
  Serve();
  return false;
}

void WaitingLine::Serve() {
  std::vector<std::shared_ptr<Waiter>> served;
  {
    base::MutexLock lock(&mutex_);
    std::vector<const Account*> blocked;
    for (auto at = queue_.begin(); at != queue_.end();) {
      Waiter& waiter = **at;
      if (std::find(blocked.begin(), blocked.end(), &waiter.account) == blocked.end() &&
          waiter.account.TryCharge(waiter.bytes)) {
        waiter.granted.store(1);
        waiters_.fetch_sub(1);
        waiter.account.waiting_.fetch_sub(1);
        served.push_back(std::move(*at));
        at = queue_.erase(at);
      } else {
        blocked.push_back(&waiter.account);
        ++at;
      }
    }
  }
  for (const auto& waiter : served) waiter->clock.Wake(waiter->granted, 1);
}

}  // namespace gpushare::quota
