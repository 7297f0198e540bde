// SPDX-License-Identifier: Apache-2.0
#include "gate/watchdog.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpushare::gate {

Watchdog::Watchdog(base::Clock& clock, Nanos limit, Callback callback)
    : clock_(clock),
      limit_(limit),
      callback_(std::move(callback)),
      thread_(clock.StartService("gpushare-watch", [this] { Run(); })) {}

Watchdog::~Watchdog() { Stop(); }

void Watchdog::Stop() {
  if (thread_ == nullptr) return;
  stopping_ = true;
  Poke();
  thread_->Join();
  thread_ = nullptr;
}

void Watchdog::Tell(std::vector<Incident> incidents) {
  if (incidents.empty()) return;
  // The longest overdue work is reported first: other work may be waiting for it without the meter knowing.
  std::stable_sort(incidents.begin(), incidents.end(),
                   [](const Incident& a, const Incident& b) { return a.late > b.late; });
  {
    const base::MutexLock lock(&mutex_);
    told_.insert(told_.end(), std::make_move_iterator(incidents.begin()),
                 std::make_move_iterator(incidents.end()));
  }
  Poke();
}

void Watchdog::Poke() {
  poke_.fetch_add(1);
  clock_.Wake(poke_, 1);
}

void Watchdog::Run() {
  id_ = std::this_thread::get_id();
  for (;;) {
    const uint32_t seen = poke_.load();
    if (stopping_) return;
    std::vector<Incident> told;  // empty, it needs no memory
    {
      const base::MutexLock lock(&mutex_);
      told.swap(told_);
    }
    for (const Incident& incident : told) {
      callback_(incident);
      if (stopping_) return;
    }
    clock_.Wait(poke_, seen, kNever, Nanos(0));
  }
}

}  // namespace gpushare::gate
