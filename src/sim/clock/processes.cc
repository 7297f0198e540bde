// SPDX-License-Identifier: Apache-2.0
// A virtual clock that several processes share.
#include <algorithm>

#include "sim/clock/clock.h"
#include "sim/processes/turn.h"

namespace gpushare::sim {

// The thread that gives the turn away does not wait for its return. A thread of the clock's own waits, and wakes the thread of
// this process that is next.

void Clock::RefreshLimit() {
  limit_ = shared_.load(std::memory_order_relaxed)->Limit(now(), &others_drive_);
  horizon_ = 0;  // every call checks again: what this process does changes when others are due
  HeapTopChanged();
}

// True: another process, or none, has the turn. Then the caller must not touch the simulator any more.
bool Clock::GiveAway() {
  away_.store(true);
  // A thread that arrived before away_ was set did not ask for the turn.
  if (inbox_.load() == nullptr && shared_.load(std::memory_order_relaxed)
                                      ->Pass({.now = now(),
                                              .thread = queued_ > 0 ? next_thread_ : kForever,
                                              .event = std::min(next_event_, next_thread_),
                                              .waits = waiting_ > 0})) {
    return true;
  }
  away_.store(false);
  RefreshLimit();
  return false;
}

void Clock::TurnCame(uint64_t at) {
  away_.store(false);
  AdvanceTo(at);
  RefreshLimit();
  run_events_();
}

void Clock::Share(SharedTurn* turn) {
  away_.store(true);
  shared_.store(turn);
  {
    const std::lock_guard lock(registry_mutex_);
    StartWatchdog();
  }
  int cpu = -1;
  const uint64_t at = turn->Join(now(), &cpu);
  {
    const std::lock_guard lock(registry_mutex_);
    if (cpu_ < 0 && sched_getaffinity(0, sizeof(allowed_), &allowed_) == 0) cpu_ = cpu;
  }
  away_.store(false);
  AdvanceTo(at);
  RefreshLimit();
  StartTurnThread();
}

void Clock::Unshare() {
  shared_.store(nullptr);
  if (away_.exchange(false) && running_ == nullptr) idle_.store(1);
  limit_ = horizon_ = kForever;
  others_drive_ = false;
  HeapTopChanged();
}

void* TurnMain(void* arg) {
  Clock* const clock = static_cast<Clock*>(arg);
  SharedTurn* const turn = clock->shared_.load();
  uint64_t at;
  while (turn != nullptr && turn->Await(&at)) {
    clock->TurnCame(at);
    clock->ScheduleFrom(nullptr);
  }
  return nullptr;
}

void Clock::StartTurnThread() { StartThread(&TurnMain, this); }

}  // namespace gpushare::sim
